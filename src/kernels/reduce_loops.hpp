// reduce_loops.hpp: reductions and scalings as loops over vectors, for one instruction set (simd_vector.hpp).
#pragma once
#include "src/kernels/cpu_kernels.hpp"
#include "src/kernels/simd_vector.hpp"

namespace weft::internal {
namespace {

template <weftDataType_t type>
using ElementOf = typename Arithmetic<type>::Element;
template <weftDataType_t type>
using AccumulatorOf = typename Arithmetic<type>::Accumulator;
template <weftDataType_t type>
constexpr int elements_of = sizeof(typename SimdVector<type>::Packed) / sizeof(ElementOf<type>);  // of one vector

template <weftDataType_t type>
WEFT_INLINE AccumulatorOf<type> get_one(const void* array, size_t i) {
    ElementOf<type> element;
    __builtin_memcpy(&element, static_cast<const char*>(array) + i * sizeof element, sizeof element);
    return Arithmetic<type>::widen(element);
}
template <weftDataType_t type>
WEFT_INLINE void put_one(void* array, size_t i, AccumulatorOf<type> value) {
    const ElementOf<type> element = Arithmetic<type>::round(value);
    __builtin_memcpy(static_cast<char*>(array) + i * sizeof element, &element, sizeof element);
}

// A job with its pointers in registers: `fixed` sources, or any number if `fixed` is 0.
template <int fixed>
struct Operands {
    const void* source[fixed ? fixed : 1];
    const void* const* sources;
    int source_count;
    void* destination;
    void* const* destinations;
    int destination_count;
    int streamed;

    WEFT_INLINE explicit Operands(const ReduceJob& job)
        : sources(job.sources),
          source_count(fixed ? fixed : job.source_count),
          destination(job.destinations[0]),
          destinations(job.destinations),
          destination_count(job.destination_count),
          streamed(job.stores == Stores::streaming ? job.streamed : 0) {
        for (int j = 0; j < (fixed ? fixed : 1); ++j) source[j] = job.sources[j];
    }
    WEFT_INLINE const void* at(int j) const { return fixed ? source[j] : sources[j]; }
};

// The scaling of weftAvg. For other reductions it is empty and compiles to nothing.
template <weftDataType_t type, weftRedOp_t op>
struct Average {
    using A = AccumulatorOf<type>;
    static constexpr bool divides = op == weftAvg, shares = divides && std::is_floating_point_v<A>;
    std::conditional_t<std::is_floating_point_v<A>, A, uint32_t> divisor = 0;  // 0: none
    A factor = 0;
    int first = 0, end = 0;  // the sources that are multiplied by `factor`
    bool rounds = false;

    WEFT_INLINE explicit Average(const ReduceJob& job) {
        if constexpr (shares) {
            divisor = average_divisor<A>(job.average_of, job.share_of);
            rounds = job.contribution != ReduceJob::every_source;
            if (job.share_of == 0 || job.contribution == ReduceJob::no_source) return;
            factor = A(1) / A(job.share_of);
            first = rounds ? job.contribution : 0;
            end = rounds ? first + 1 : INT_MAX;
        } else if constexpr (divides) {
            divisor = job.average_of;
        }
    }
    WEFT_INLINE A average_of(A sum) const {
        if constexpr (shares) return divisor != 0 ? sum / divisor : sum;
        if constexpr (divides && !shares) return divisor != 0 ? average(sum, divisor) : sum;
        return sum;
    }
    WEFT_INLINE typename SimdVector<type>::Wide average_of(const typename SimdVector<type>::Wide& sum) const {
        if constexpr (divides) {
            if (divisor != 0) return average_wide<type>(sum, divisor);
        }
        return sum;
    }
    WEFT_INLINE bool shared(int source) const { return shares && source >= first && source < end; }
    WEFT_INLINE A share(int source, A value) const {
        if (!shared(source)) return value;
        const A product = A(factor * value);
        return rounds ? Arithmetic<type>::widen(Arithmetic<type>::round(product)) : product;
    }
    WEFT_INLINE typename SimdVector<type>::Wide share(int source, const typename SimdVector<type>::Wide& value) const {
        using L = SimdVector<type>;
        if (!shared(source)) return value;
        const auto product = combine_wide<type, weftProd>(broadcast<type>(factor), value);
        return rounds ? L::widen(L::round(product)) : product;
    }
};

template <weftDataType_t type, weftRedOp_t op, int fixed>
WEFT_INLINE void reduce_one(const Operands<fixed>& operands, const Average<type, op>& averages, size_t i) {
    auto value = averages.share(0, get_one<type>(operands.source[0], i));
    for (int j = 1; j < operands.source_count; ++j)
        value = combine<op>(value, averages.share(j, get_one<type>(operands.at(j), i)));
    value = averages.average_of(value);
    put_one<type>(operands.destination, i, value);
    for (int j = 1; j < operands.destination_count; ++j) put_one<type>(operands.destinations[j], i, value);
}

// `unroll` vectors, or only the first `bytes` bytes of one, from an offset in bytes on.
template <weftDataType_t type, int unroll, bool partial>
struct Block {
    using L = SimdVector<type>;
    using Packed = typename L::Packed;
    size_t offset, bytes;

    WEFT_INLINE typename L::Wide get(const void* source, int u) const {
        const char* from = static_cast<const char*>(source) + offset + size_t(u) * sizeof(Packed);
        if constexpr (partial)
            return L::widen(load_first<Packed>(from, bytes));
        else
            return L::widen(load<Packed>(from));
    }
    WEFT_INLINE void put(void* destination, const Packed (&value)[unroll], bool streaming) const {
        char* to = static_cast<char*>(destination) + offset;
        if constexpr (partial) return store_first(to, value[0], bytes);
        for (int u = 0; u < unroll; ++u) store(to + size_t(u) * sizeof(Packed), value[u], streaming);
    }
};

// All sources are read before anything is written, because a destination may be one of them.
template <weftDataType_t type, weftRedOp_t op, int fixed, int unroll, bool partial = false>
WEFT_INLINE void reduce_block(const Operands<fixed>& operands, const Average<type, op>& averages, size_t i,
                              size_t elements = 0) {
    using B = Block<type, unroll, partial>;
    const B block{i * sizeof(ElementOf<type>), elements * sizeof(ElementOf<type>)};
    typename SimdVector<type>::Wide value[unroll];
    for (int u = 0; u < unroll; ++u) value[u] = averages.share(0, block.get(operands.source[0], u));
    for (int j = 1; j < operands.source_count; ++j) {
        const void* source = operands.at(j);
        for (int u = 0; u < unroll; ++u)
            value[u] = combine_wide<type, op>(value[u], averages.share(j, block.get(source, u)));
    }
    for (int u = 0; u < unroll; ++u) value[u] = averages.average_of(value[u]);
    typename B::Packed packed[unroll];
    for (int u = 0; u < unroll; ++u) packed[u] = SimdVector<type>::round(value[u]);
    block.put(operands.destination, packed, operands.streamed > 0);
    for (int j = 1; j < operands.destination_count; ++j)
        block.put(operands.destinations[j], packed, j < operands.streamed);
}

// Elements `begin` to `end`.
template <weftDataType_t type, weftRedOp_t op, int fixed>
void reduce_range(const ReduceJob& job, size_t begin, size_t end) {
    // Four accumulators, so that the latencies of their additions overlap.
    constexpr int unroll = 4 / SimdVector<type>::parts;
    constexpr size_t elements = elements_of<type>;
    const Operands<fixed> operands(job);
    const Average<type, op> averages(job);
    size_t i = begin;
    for (; i + unroll * elements <= end; i += unroll * elements)
        reduce_block<type, op, fixed, unroll>(operands, averages, i);
    if constexpr (unroll > 1) {
        for (; i + elements <= end; i += elements) reduce_block<type, op, fixed, 1>(operands, averages, i);
    }
    if (i < end) reduce_block<type, op, fixed, 1, true>(operands, averages, i, end - i);
}

using ReduceRange = void (*)(const ReduceJob& job, size_t begin, size_t end);

// Loops with their pointers in registers, for frequent types and numbers of sources:
// perf/results/2026-11-27-special-cases.md.
template <weftDataType_t type, weftRedOp_t op>
WEFT_INLINE ReduceRange range_for(int source_count) {
    if constexpr (op == weftSum &&
                  (type == weftFloat32 || type == weftBfloat16 || type == weftFloat16 || type == weftFloat64)) {
        if (source_count == 2) return reduce_range<type, op, 2>;
        if (source_count == 3) return reduce_range<type, op, 3>;
        if (source_count == 4) return reduce_range<type, op, 4>;
        if (source_count == 8) return reduce_range<type, op, 8>;
    }
    return reduce_range<type, op, 0>;
}

// How many elements lie before the first line boundary of the first destination, where streaming can begin; 0 if the
// boundary lies within an element.
WEFT_INLINE size_t elements_to_line(const ReduceJob& job, size_t element_bytes) {
    const size_t bytes = bytes_to_line(job.destinations[0]);
    const size_t elements = bytes / element_bytes;
    return bytes % element_bytes == 0 && elements < job.count ? elements : 0;
}

template <weftDataType_t type, weftRedOp_t op>
void reduce(const ReduceJob& job) {
    // For one or two elements, such as a loss or a counter, only latency matters.
    if constexpr (sizeof(AccumulatorOf<type>) == sizeof(ElementOf<type>)) {
        if (job.count <= 2) {
            const Operands<0> operands(job);
            const Average<type, op> averages(job);
            for (size_t i = 0; i < job.count; ++i) reduce_one<type, op, 0>(operands, averages, i);
            return;
        }
    }
    const ReduceRange range = range_for<type, op>(job.source_count);
    if (job.stores == Stores::ordinary) return range(job, 0, job.count);
    if (job.count * sizeof(ElementOf<type>) < least_streamed_bytes) {
        ReduceJob ordinary = job;
        ordinary.stores = Stores::ordinary;
        return range(ordinary, 0, job.count);
    }
    const size_t head = elements_to_line(job, sizeof(ElementOf<type>));
    if (head) range(job, 0, head);
    range(job, head, job.count);
    fence_streaming();
}

template <weftDataType_t type>
void scale(void* destination, const void* source, size_t count, const void* scalar) {
    constexpr size_t elements = elements_of<type>;
    constexpr size_t bytes = sizeof(ElementOf<type>);
    const auto factor = broadcast<type>(get_one<type>(scalar, 0));
    size_t i = 0;
    for (; i + elements <= count; i += elements) {
        const Block<type, 1, false> block{i * bytes, 0};
        block.put(destination, {SimdVector<type>::round(combine_wide<type, weftProd>(factor, block.get(source, 0)))},
                  false);
    }
    if (i < count) {
        const Block<type, 1, true> block{i * bytes, (count - i) * bytes};
        block.put(destination, {SimdVector<type>::round(combine_wide<type, weftProd>(factor, block.get(source, 0)))},
                  false);
    }
}

}  // namespace
}  // namespace weft::internal
