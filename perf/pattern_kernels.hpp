// pattern_kernels.hpp: what kernels of the benchmarks' own do with periods (pattern.hpp) in a GPU's memory: bodies that
// compile for the host too, where tests and the fake driver run them. Nothing here is the library's, which they check.
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define PERF_DEVICE __device__ __forceinline__
#else
#include <atomic>
#define PERF_DEVICE inline
#endif

namespace perf {

// Of pattern_kernels.cu.
inline constexpr char fill_entry_point[] = "perf_fill", wrong_entry_point[] = "perf_count_wrong";
inline constexpr unsigned pattern_threads = 512;  // of a block

struct PatternArguments {
    std::byte* buffer;        // at a multiple of the element's size, as is the period
    uint64_t bytes;           // whole elements
    const std::byte* period;  // what it holds over and over, the last one cut off
    uint64_t period_bytes;    // whole elements
    uint32_t element_bytes;   // 1, 2, 4 or 8
    uint64_t* wrong;          // elements that differ in any bit are added to this word
};

// Whose thread it is.
struct Worker {
    uint32_t thread, threads;  // of the block
    uint32_t block, blocks;
};

// The thread's elements: a block has every so manieth period of the buffer, so that nobody divides by the length of one.
template <class Element, class Visit>
PERF_DEVICE void for_each_element(const Worker& worker, const PatternArguments& a, Visit visit) {
    auto* const buffer = reinterpret_cast<Element*>(a.buffer);
    const auto* const period = reinterpret_cast<const Element*>(a.period);
    const uint64_t count = a.bytes / sizeof(Element), length = a.period_bytes / sizeof(Element);
    for (uint64_t first = length * worker.block; first < count; first += length * worker.blocks) {
        const uint64_t left = count - first, here = left < length ? left : length;
        for (uint64_t i = worker.thread; i < here; i += worker.threads) visit(buffer[first + i], period[i]);
    }
}

template <class Visit>
PERF_DEVICE void for_each_element(const Worker& worker, const PatternArguments& a, Visit visit) {
    switch (a.element_bytes) {
        case 1: return for_each_element<uint8_t>(worker, a, visit);
        case 2: return for_each_element<uint16_t>(worker, a, visit);
        case 4: return for_each_element<uint32_t>(worker, a, visit);
        default: return for_each_element<uint64_t>(worker, a, visit);
    }
}

PERF_DEVICE void fill_pattern(const Worker& worker, const PatternArguments& arguments) {
    for_each_element(worker, arguments, [](auto& element, auto wanted) { element = wanted; });
}

PERF_DEVICE void count_wrong_elements(const Worker& worker, const PatternArguments& arguments) {
    uint64_t wrong = 0;
    for_each_element(worker, arguments, [&wrong](const auto& element, auto wanted) { wrong += element != wanted; });
    if (wrong == 0) return;
#if defined(__CUDACC__)
    static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
    atomicAdd(reinterpret_cast<unsigned long long*>(arguments.wrong), static_cast<unsigned long long>(wrong));
#else
    std::atomic_ref(*arguments.wrong).fetch_add(wrong, std::memory_order_relaxed);
#endif
}

}  // namespace perf
