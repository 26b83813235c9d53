#include "src/train/local_arithmetic.hpp"

#include <cstring>

#include "src/base/arithmetic.hpp"
#include "src/gpu/kernels/training/local_elements.hpp"
#include "src/train/memory_space.hpp"

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

using cuda::LocalWork;

cuda::LocalArguments work_on(LocalWork work, const void* values, size_t count, weftDataType_t type) {
    cuda::LocalArguments arguments = {};
    arguments.work = work;
    arguments.type = type;
    arguments.count = count;
    arguments.values = const_cast<void*>(values);
    return arguments;
}

Status run(const MemorySpace& space, const cuda::LocalArguments& work) {
    if (space.on_device()) return run_local_kernel(space.device(), work, space.stream());
    cuda::local_elements(cuda::AllNumbers(), work);
    return ok();
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

Status prepare_local_arithmetic(MemorySpace& space) { return run(space, {}); }

Status widen(MemorySpace& space, void* state, const void* values, size_t count, weftDataType_t type) {
    auto work = work_on(LocalWork::widen, values, count, type);
    work.state = state;
    return run(space, work);
}

Status subtract(MemorySpace& space, void* difference, const void* anchor, const void* values, size_t count,
                weftDataType_t type) {
    auto work = work_on(LocalWork::subtract, values, count, type);
    work.state = const_cast<void*>(anchor);
    work.difference = difference;
    return run(space, work);
}

Status step_outer(MemorySpace& space, const OuterStep& step, void* values, void* anchor, void* momentum,
                  const void* gradient, size_t count, weftDataType_t type) {
    auto work = work_on(LocalWork::outer, values, count, type);
    work.state = anchor;
    work.momentum = momentum;
    work.difference = const_cast<void*>(gradient);
    work.learning_rate = step.learning_rate;
    work.decay = step.momentum;
    work.mix = step.mix;
    return run(space, work);
}

Status find_infinite(MemorySpace& space, const void* values, size_t count, weftDataType_t type, uint32_t* found) {
    auto work = work_on(LocalWork::find_infinite, values, count, type);
    work.found = found;
    return run(space, work);
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
    uint32_t found = 0;
    auto work = work_on(LocalWork::find_infinite, values, count, type);
    work.found = &found;
    cuda::local_elements(cuda::AllNumbers(), work);
    return found == 0;
}

}  // namespace weft::internal::train
