// reduce_loops.hpp: reductions and scalings as loops over vectors, for one instruction set, see lanes.hpp.
#pragma once
#include "src/executor/host/lanes.hpp"
#include "src/executor/host/movers.hpp"

namespace weft {
namespace {

template <weftDataType_t type>
using ElementOf = typename Arithmetic<type>::Element;
template <weftDataType_t type>
using AccumulatorOf = typename Arithmetic<type>::Accumulator;
template <weftDataType_t type>
constexpr int elements_of = sizeof(typename Lanes<type>::Packed) / sizeof(ElementOf<type>);  // of one vector

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

// A job with its pointers in registers: `fixed` sources, or if that is 0 any number.
template <int fixed>
struct Operands {
    const void* source[fixed ? fixed : 1];
    const void* const* sources;
    int source_count;
    void* destination;
    void* const* destinations;
    int destination_count;
    int streamed;
    uint32_t average_of;

    WEFT_INLINE explicit Operands(const ReduceJob& job)
        : sources(job.sources),
          source_count(fixed ? fixed : job.source_count),
          destination(job.destinations[0]),
          destinations(job.destinations),
          destination_count(job.destination_count),
          streamed(job.stores == Stores::streaming ? job.streamed : 0),
          average_of(job.average_of) {
        for (int j = 0; j < (fixed ? fixed : 1); ++j) source[j] = job.sources[j];
    }
    WEFT_INLINE const void* at(int j) const { return fixed ? source[j] : sources[j]; }
};

template <weftDataType_t type, weftRedOp_t op, int fixed>
WEFT_INLINE void reduce_one(const Operands<fixed>& operands, size_t i) {
    auto value = get_one<type>(operands.source[0], i);
    for (int j = 1; j < operands.source_count; ++j) value = combine<op>(value, get_one<type>(operands.at(j), i));
    if (operands.average_of) value = average(value, operands.average_of);
    put_one<type>(operands.destination, i, value);
    for (int j = 1; j < operands.destination_count; ++j) put_one<type>(operands.destinations[j], i, value);
}

// `unroll` vectors, or only the first `bytes` bytes of one, from an offset in bytes on.
template <weftDataType_t type, int unroll, bool partial>
struct Block {
    using L = Lanes<type>;
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

// All sources are read before anything is written, for a destination may be one of them.
template <weftDataType_t type, weftRedOp_t op, int fixed, int unroll, bool partial = false>
WEFT_INLINE void reduce_block(const Operands<fixed>& operands, size_t i, size_t elements = 0) {
    using B = Block<type, unroll, partial>;
    const B block{i * sizeof(ElementOf<type>), elements * sizeof(ElementOf<type>)};
    typename Lanes<type>::Wide value[unroll];
    for (int u = 0; u < unroll; ++u) value[u] = block.get(operands.source[0], u);
    for (int j = 1; j < operands.source_count; ++j) {
        const void* source = operands.at(j);
        for (int u = 0; u < unroll; ++u) value[u] = combine_wide<type, op>(value[u], block.get(source, u));
    }
    if (operands.average_of) {
        for (int u = 0; u < unroll; ++u) value[u] = average_wide<type>(value[u], operands.average_of);
    }
    typename B::Packed packed[unroll];
    for (int u = 0; u < unroll; ++u) packed[u] = Lanes<type>::round(value[u]);
    block.put(operands.destination, packed, operands.streamed > 0);
    for (int j = 1; j < operands.destination_count; ++j)
        block.put(operands.destinations[j], packed, j < operands.streamed);
}

// Elements begin to end.
template <weftDataType_t type, weftRedOp_t op, int fixed>
void reduce_range(const ReduceJob& job, size_t begin, size_t end) {
    // Four accumulators, so that the latencies of their additions overlap.
    constexpr int unroll = 4 / Lanes<type>::parts;
    constexpr size_t elements = elements_of<type>;
    const Operands<fixed> operands(job);
    size_t i = begin;
    for (; i + unroll * elements <= end; i += unroll * elements) reduce_block<type, op, fixed, unroll>(operands, i);
    if constexpr (unroll > 1) {
        for (; i + elements <= end; i += elements) reduce_block<type, op, fixed, 1>(operands, i);
    }
    if (i < end) reduce_block<type, op, fixed, 1, true>(operands, i, end - i);
}

using ReduceRange = void (*)(const ReduceJob& job, size_t begin, size_t end);

// Loops with their pointers in registers for the types and the numbers of sources that matter most.
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
    // A loss or a counter is one or two numbers and waits for nothing but latency: straight to the work.
    if constexpr (sizeof(AccumulatorOf<type>) == sizeof(ElementOf<type>)) {
        if (job.count <= 2) {
            const Operands<0> operands(job);
            for (size_t i = 0; i < job.count; ++i) reduce_one<type, op, 0>(operands, i);
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
        block.put(destination, {Lanes<type>::round(combine_wide<type, weftProd>(factor, block.get(source, 0)))}, false);
    }
    if (i < count) {
        const Block<type, 1, true> block{i * bytes, (count - i) * bytes};
        block.put(destination, {Lanes<type>::round(combine_wide<type, weftProd>(factor, block.get(source, 0)))}, false);
    }
}

}  // namespace
}  // namespace weft
