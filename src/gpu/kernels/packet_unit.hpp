// packet_unit.hpp: the data of a packet line: 8 bytes at any address, and the elements in them.
#pragma once
#include "src/gpu/kernels/reduce.hpp"

namespace weft::internal::cuda {

inline constexpr size_t unit_bytes = 8;  // data of a line

// The first `bytes` bytes (at most 8) at any address, padded with zeros.
WEFT_DEVICE_COLD uint64_t load_partial_unit(const std::byte* address, size_t bytes) {
    if (bytes >= unit_bytes && misalignment(address, 4) == 0)
        return uint64_t(load_pack<4>(address + 4).words[0]) << 32 | load_pack<4>(address).words[0];
    uint64_t unit = 0;
    for (size_t i = 0; i < unit_bytes && i < bytes; ++i) unit |= uint64_t(address[i]) << 8 * i;
    return unit;
}
WEFT_DEVICE_COLD void store_partial_unit(std::byte* address, size_t bytes, uint64_t unit) {
    if (bytes >= unit_bytes && misalignment(address, 4) == 0) {
        store_pack<4>(address, {{uint32_t(unit)}});
        store_pack<4>(address + 4, {{uint32_t(unit >> 32)}});
    } else {
        for (size_t i = 0; i < unit_bytes && i < bytes; ++i) address[i] = std::byte(unit >> 8 * i);
    }
}
// The elements of one line.
template <weftDataType_t type, bool adds>
struct Unit {
    static constexpr int words = int(unit_bytes / sizeof(WordOf<type>));
    WidenedWord<type> at[words];

    static WEFT_DEVICE Unit widen(uint64_t unit) {
        Unit wide;
        for (int w = 0; w < words; ++w)
            wide.at[w] = cuda::widen<type>(WordOf<type>(unit >> 8 * sizeof(WordOf<type>) * unsigned(w) % 64));
        return wide;
    }
    WEFT_DEVICE uint64_t rounded() const {
        uint64_t unit = 0;
        for (int w = 0; w < words; ++w)
            unit |= uint64_t(round<type>(at[w])) << 8 * sizeof(WordOf<type>) * unsigned(w) % 64;
        return unit;
    }
    static WEFT_DEVICE Unit combine(const Reducer<type, adds>& reducer, Unit left, const Unit& right) {
        for (int w = 0; w < words; ++w) left.at[w] = reducer.combine(left.at[w], right.at[w]);
        return left;
    }
    // Rarely used reductions take less code.
    static WEFT_DEVICE_COLD Unit combine_cold(Reducer<type, adds> reducer, Unit left, Unit right) {
        return combine(reducer, left, right);
    }
    WEFT_DEVICE void finish(const Reducer<type, adds>& reducer) {
        for (int w = 0; w < words; ++w) at[w] = reducer.finish(at[w]);
    }
};

}  // namespace weft::internal::cuda
