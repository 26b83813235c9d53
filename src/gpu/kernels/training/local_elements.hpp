// local_elements.hpp: the work of training with rare communication, one element at a time. The host's loops are the same
// code.
#pragma once
#include "src/gpu/kernels/training/hook_elements.hpp"
#include "src/gpu/kernels/training/local_arguments.hpp"

namespace weft::internal::cuda {

template <weftDataType_t type, class Range>
class LocalElements {
    using Numbers = Arithmetic<type>;
    using Element = typename Numbers::Element;
    using State = typename Numbers::Accumulator;

  public:
    WEFT_DEVICE LocalElements(const Range& own, const LocalArguments& arguments) : own_(own), a_(arguments) {}

    WEFT_DEVICE void run() const {
        switch (a_.work) {
            case LocalWork::widen: return widen();
            case LocalWork::subtract: return subtract();
            case LocalWork::outer: return step_outer();
            case LocalWork::find_infinite: return find_infinite();
        }
    }

  private:
    WEFT_DEVICE void widen() const {
        const auto* const from = static_cast<const Element*>(a_.values);
        auto* const to = static_cast<State*>(a_.state);
        for (uint64_t i = own_.first; i < a_.count; i += own_.step) to[i] = Numbers::widen(from[i]);
    }
    WEFT_DEVICE void subtract() const {
        const auto* const left = static_cast<const State*>(a_.state);
        const auto* const right = static_cast<const Element*>(a_.values);
        auto* const to = static_cast<State*>(a_.difference);
        for (uint64_t i = own_.first; i < a_.count; i += own_.step) to[i] = left[i] - State(Numbers::widen(right[i]));
    }
    // As torch.optim.SGD does it.
    WEFT_DEVICE void step_outer() const {
        const State rate = State(a_.learning_rate), decay = State(a_.decay), mix = State(a_.mix);
        auto* const locals = static_cast<Element*>(a_.values);
        auto* const globals = static_cast<State*>(a_.state);
        auto* const moments = static_cast<State*>(a_.momentum);
        const auto* const gradients = static_cast<const State*>(a_.difference);
        for (uint64_t i = own_.first; i < a_.count; i += own_.step) {
            moments[i] = decay * moments[i] + gradients[i];
            globals[i] -= rate * (gradients[i] + decay * moments[i]);
            // Without a mix a local value does not count, even if it is infinite.
            const State mixed =
                mix == 0 ? globals[i] : globals[i] + mix * (State(Numbers::widen(locals[i])) - globals[i]);
            locals[i] = Numbers::round(mixed);
        }
    }
    WEFT_DEVICE void find_infinite() const {
        const auto* const from = static_cast<const Element*>(a_.values);
        uint32_t found = 0;
        for (uint64_t i = own_.first; i < a_.count; i += own_.step) {
            const State value = State(Numbers::widen(from[i]));
            found |= uint32_t(!(value - value == 0));
        }
        if (found) raise_to(a_.found, 1);
    }

    const Range& own_;
    const LocalArguments& a_;
};

template <class Range>
WEFT_DEVICE void local_elements(const Range& own, const LocalArguments& a) {
    switch (a.type) {
        case weftFloat16: return LocalElements<weftFloat16, Range>(own, a).run();
        case weftBfloat16: return LocalElements<weftBfloat16, Range>(own, a).run();
        case weftFloat64: return LocalElements<weftFloat64, Range>(own, a).run();
        default: return LocalElements<weftFloat32, Range>(own, a).run();
    }
}

}  // namespace weft::internal::cuda
