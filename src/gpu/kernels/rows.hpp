// rows.hpp: copies of several rows at once, as between a buffer and staging memory, or from several ranks. A block loads
// from several rows before it stores, because one row alone keeps too few loads in flight.
#pragma once
#include "src/gpu/kernels/reduce.hpp"

namespace weft::internal::cuda {

struct Row {
    std::byte* target;
    const std::byte* source;
    size_t bytes;
};
// Bytes of a unit of a row. A thread of `threads` copies the units thread, thread + threads, ... of every row. So the
// same thread stages a unit and takes it out, whatever the alignment of the buffers is.
inline constexpr int row_unit = 16;

// At any alignment; at most a unit.
WEFT_DEVICE_COLD void copy_unit(std::byte* target, const std::byte* source, size_t bytes) {
    const bool words = misalignment(target, 4) == 0 && misalignment(source, 4) == 0;
    const size_t whole = words ? bytes / 4 * 4 : 0;
    WEFT_UNROLL
    for (size_t i = 0; i < row_unit; i += 4)
        if (i < whole) store_pack(target + i, load_pack<4>(source + i));
    WEFT_NO_UNROLL
    for (size_t i = whole; i < bytes; ++i) target[i] = source[i];
}

// The bytes after the last whole unit, or all.
template <bool by_units>
WEFT_DEVICE void copy_rest(const Team& team, const Row& row, bool all) {
    if (row.target == row.source) return;
    if (all && !by_units) return copy_range(team, row.target, row.source, row.bytes);
    size_t i = size_t(team.thread) * row_unit;
    const size_t stride = size_t(team.threads) * row_unit, whole = row.bytes / row_unit * row_unit;
    WEFT_NO_UNROLL
    for (; i < row.bytes; i += stride)
        if (all || i == whole)
            copy_unit(row.target + i, row.source + i, row.bytes - i < row_unit ? row.bytes - i : row_unit);
}

// Calls row_of(k) for the rows 0 to count - 1. It skips rows whose target is their source.
// units: how many of each of four rows are loaded together.
// by_units: also rows that are not aligned are copied by units. Otherwise they are copied one by one, which is faster.
template <int units, bool by_units, class RowOf>
WEFT_DEVICE void copy_rows(const Team& team, int count, RowOf&& row_of) {
    constexpr int rows = 4;
    const size_t stride = size_t(team.threads) * row_unit, begin = size_t(team.thread) * row_unit;
    WEFT_NO_UNROLL
    for (int first = 0; first < count; first += rows) {
        const int next = first + rows < count ? first + rows : count;
        Row row[rows];
        size_t longest = 0;
        uint32_t unaligned = 0, parts = 0, copied = 0;  // parts: bytes after a row's last whole unit; copied: by bit
        WEFT_UNROLL
        for (int k = 0; k < rows; ++k) {
            row[k] = row_of(first + k < count ? first + k : first);
            if (first + k >= count || row[k].target == row[k].source) continue;
            copied |= 1u << k;
            if (row[k].bytes > longest) longest = row[k].bytes;
            parts |= uint32_t(row[k].bytes) % row_unit;
            unaligned |= misalignment(row[k].target, row_unit) | misalignment(row[k].source, row_unit);
        }
        WEFT_NO_UNROLL
        for (size_t at = begin; at < longest && unaligned == 0; at += units * stride) {
            Pack<row_unit> loaded[rows][units];
            WEFT_UNROLL
            for (int k = 0; k < rows; ++k) WEFT_UNROLL
            for (int u = 0; u < units; ++u)
                if ((copied >> k & 1) != 0 && at + size_t(u) * stride + row_unit <= row[k].bytes)
                    loaded[k][u] = load_pack<row_unit>(row[k].source + at + size_t(u) * stride);
            WEFT_UNROLL
            for (int k = 0; k < rows; ++k) WEFT_UNROLL
            for (int u = 0; u < units; ++u)
                if ((copied >> k & 1) != 0 && at + size_t(u) * stride + row_unit <= row[k].bytes)
                    store_pack(row[k].target + at + size_t(u) * stride, loaded[k][u]);
        }
        if (unaligned == 0 && parts == 0) continue;
        WEFT_NO_UNROLL
        for (int k = first; k < next; ++k) copy_rest<by_units>(team, row_of(k), unaligned != 0);
    }
}

// A unit of this rank's input, scaled. Rarely used.
template <weftDataType_t type, bool adds>
WEFT_DEVICE_COLD void scale_unit(Reducer<type, adds> reducer, std::byte* target, const std::byte* source,
                                 size_t bytes) {
    constexpr size_t size = sizeof(ElementOf<type>);
    WEFT_NO_UNROLL
    for (size_t i = 0; i < bytes; i += size) {
        const WordOf<type> word = round<type>(reducer.scale(widen<type>(load_element<type>(source + i))));
        __builtin_memcpy(target + i, &word, size);
    }
}
// Rows of this rank's input, scaled if the operation requires it.
template <weftDataType_t type, bool adds, class RowOf>
WEFT_DEVICE void copy_input_rows(const Team& team, const Reducer<type, adds>& reducer, int count, RowOf&& row_of) {
    if (!reducer.scaled()) return copy_rows<1, true>(team, count, row_of);
    WEFT_NO_UNROLL
    for (int k = 0; k < count; ++k) {
        const Row row = row_of(k);
        WEFT_NO_UNROLL
        for (size_t i = size_t(team.thread) * row_unit; i < row.bytes; i += size_t(team.threads) * row_unit)
            scale_unit<type, adds>(reducer, row.target + i, row.source + i,
                                   row.bytes - i < row_unit ? row.bytes - i : row_unit);
    }
}

}  // namespace weft::internal::cuda
