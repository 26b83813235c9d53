// pattern_kernels.hpp: the bodies of the benchmarks' own kernels, which write and compare periods (pattern.hpp).
// They compile for the host too, where tests and the fake driver run them. They use no code of the library under test.
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

// Names of the entry points in pattern_kernels.cu.
inline constexpr char fill_entry_point[] = "perf_fill", wrong_entry_point[] = "perf_count_wrong";
inline constexpr unsigned pattern_threads = 512;  // of each block

struct PatternArguments {
    std::byte* buffer;        // aligned to the element's size, as is the period
    uint64_t bytes;           // a multiple of the element's size
    const std::byte* period;  // repeated in the buffer; the last copy is cut off
    uint64_t period_bytes;    // a multiple of the element's size
    uint32_t element_bytes;   // 1, 2, 4 or 8
    uint64_t* wrong;          // the count of elements that differ in any bit is added here
};

// The position of a thread in the grid.
struct Worker {
    uint32_t thread, threads;  // within the block
    uint32_t block, blocks;
};

// Visits the thread's elements. A block takes whole periods at a fixed stride, so that no thread divides by their
// length.
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
