#include "src/train/local_arithmetic.hpp"

#include <cmath>
#include <cstring>

#include "src/base/arithmetic.hpp"

namespace weft::internal::train {

namespace {

// Calls body(Arithmetic<type>()) for one of the four types of parameters.
template <class Body>
decltype(auto) with_parameter_type(weftDataType_t type, Body&& body) {
    switch (type) {
        case weftFloat16: return body(Arithmetic<weftFloat16>());
        case weftBfloat16: return body(Arithmetic<weftBfloat16>());
        case weftFloat64: return body(Arithmetic<weftFloat64>());
        default: return body(Arithmetic<weftFloat32>());
    }
}

template <class Numbers>
const typename Numbers::Element* elements(const void* values) {
    return static_cast<const typename Numbers::Element*>(values);
}
template <class Numbers>
typename Numbers::Element* elements(void* values) {
    return static_cast<typename Numbers::Element*>(values);
}

}  // namespace

weftDataType_t state_type(weftDataType_t parameter) { return parameter == weftFloat64 ? weftFloat64 : weftFloat32; }

void widen(void* state, const void* values, size_t count, weftDataType_t type) {
    with_parameter_type(type, [&](auto numbers) {
        using Numbers = decltype(numbers);
        auto* const to = static_cast<typename Numbers::Accumulator*>(state);
        const auto* const from = elements<Numbers>(values);
        for (size_t i = 0; i < count; ++i) to[i] = Numbers::widen(from[i]);
    });
}

void subtract(void* difference, const void* anchor, const void* values, size_t count, weftDataType_t type) {
    with_parameter_type(type, [&](auto numbers) {
        using Numbers = decltype(numbers);
        using State = typename Numbers::Accumulator;
        auto* const to = static_cast<State*>(difference);
        const auto* const left = static_cast<const State*>(anchor);
        const auto* const right = elements<Numbers>(values);
        for (size_t i = 0; i < count; ++i) to[i] = left[i] - Numbers::widen(right[i]);
    });
}

void step_outer(const OuterStep& step, void* values, void* anchor, void* momentum, const void* gradient, size_t count,
                weftDataType_t type) {
    with_parameter_type(type, [&](auto numbers) {
        using Numbers = decltype(numbers);
        using State = typename Numbers::Accumulator;
        const State rate = State(step.learning_rate), decay = State(step.momentum), mix = State(step.mix);
        auto* const locals = elements<Numbers>(values);
        auto* const globals = static_cast<State*>(anchor);
        auto* const moments = static_cast<State*>(momentum);
        const auto* const gradients = static_cast<const State*>(gradient);
        for (size_t i = 0; i < count; ++i) {
            moments[i] = decay * moments[i] + gradients[i];
            globals[i] -= rate * (gradients[i] + decay * moments[i]);
            // Without a mix a local value does not count, even if it is infinite.
            const State mixed = mix == 0 ? globals[i] : globals[i] + mix * (Numbers::widen(locals[i]) - globals[i]);
            locals[i] = Numbers::round(mixed);
        }
    });
}

void step_sgd(void* values, const void* gradient, size_t count, weftDataType_t type, double rate) {
    with_parameter_type(type, [&](auto numbers) {
        using Numbers = decltype(numbers);
        const auto factor = typename Numbers::Accumulator(rate);
        auto* const to = elements<Numbers>(values);
        const auto* const from = elements<Numbers>(gradient);
        for (size_t i = 0; i < count; ++i)
            to[i] = Numbers::round(Numbers::widen(to[i]) - factor * Numbers::widen(from[i]));
    });
}

void add_to_state(void* state, const void* values, size_t count, weftDataType_t type) {
    with_parameter_type(type, [&](auto numbers) {
        using Numbers = decltype(numbers);
        auto* const to = static_cast<typename Numbers::Accumulator*>(state);
        const auto* const from = elements<Numbers>(values);
        for (size_t i = 0; i < count; ++i) to[i] += Numbers::widen(from[i]);
    });
}

void take_mean(void* sum, size_t divisor, size_t count, weftDataType_t type) {
    with_parameter_type(type, [&](auto numbers) {
        using Numbers = decltype(numbers);
        using State = typename Numbers::Accumulator;
        auto* const bytes = static_cast<std::byte*>(sum);
        for (size_t i = 0; i < count; ++i) {
            State total;
            memcpy(&total, bytes + i * sizeof total, sizeof total);
            const typename Numbers::Element mean = Numbers::round(total / State(divisor));
            memcpy(bytes + i * sizeof mean, &mean, sizeof mean);
        }
    });
}

bool all_finite(const void* values, size_t count, weftDataType_t type) {
    return with_parameter_type(type, [&](auto numbers) {
        using Numbers = decltype(numbers);
        const auto* const from = elements<Numbers>(values);
        bool finite = true;
        for (size_t i = 0; i < count; ++i) finite &= bool(std::isfinite(Numbers::widen(from[i])));
        return finite;
    });
}

}  // namespace weft::internal::train
