// packet_unit.hpp: the data of a packet line: `bytes` bytes at any address, and the elements in them.
#pragma once
#include "src/gpu/kernels/reduce.hpp"

namespace weft::internal::cuda {

// The first `left` bytes (at most `bytes`) at any address, padded with zeros.
template <int bytes>
WEFT_DEVICE_COLD Pack<bytes> load_partial_unit(const std::byte* address, size_t left) {
    Pack<bytes> unit = {};
    const uint32_t offset = left >= size_t(bytes) ? misalignment(address, 8) : 1;
    WEFT_UNROLL
    for (int word = 0; word < bytes / 4; ++word) {
        if (offset == 0) {
            if (word % 2 != 0) continue;
            const Pack<8> half = load_pack<8>(address + 4 * word);
            unit.words[word] = half.words[0];
            unit.words[word + 1] = half.words[1];
        } else if (offset == 4) {
            unit.words[word] = load_pack<4>(address + 4 * word).words[0];
        } else {
            WEFT_UNROLL
            for (int i = 4 * word; i < 4 * word + 4; ++i)
                if (size_t(i) < left) unit.words[word] |= uint32_t(address[i]) << 8 * (i % 4);
        }
    }
    return unit;
}
template <int bytes>
WEFT_DEVICE_COLD void store_partial_unit(std::byte* address, size_t left, Pack<bytes> unit) {
    const uint32_t offset = left >= size_t(bytes) ? misalignment(address, 8) : 1;
    WEFT_UNROLL
    for (int word = 0; word < bytes / 4; ++word) {
        if (offset == 0) {
            if (word % 2 == 0) store_pack<8>(address + 4 * word, {{unit.words[word], unit.words[word + 1]}});
        } else if (offset == 4) {
            store_pack<4>(address + 4 * word, {{unit.words[word]}});
        } else {
            WEFT_UNROLL
            for (int i = 4 * word; i < 4 * word + 4; ++i)
                if (size_t(i) < left) address[i] = std::byte(unit.words[word] >> 8 * (i % 4));
        }
    }
}

// The elements of a unit.
template <weftDataType_t type, bool adds, int bytes>
struct Unit {
    static constexpr int words = words_of_pack<type, bytes>;
    WidenedWord<type> at[words];

    static WEFT_DEVICE Unit widen(const Pack<bytes>& pack) {
        Unit wide;
        WEFT_UNROLL
        for (int w = 0; w < words; ++w) wide.at[w] = cuda::widen<type>(word_of<type>(pack, w));
        return wide;
    }
    WEFT_DEVICE Pack<bytes> rounded() const {
        Pack<bytes> pack;
        WEFT_UNROLL
        for (int w = 0; w < words; ++w) put_word<type>(pack, w, round<type>(at[w]));
        return pack;
    }
    static WEFT_DEVICE Unit combine(const Reducer<type, adds>& reducer, Unit left, const Unit& right) {
        WEFT_UNROLL
        for (int w = 0; w < words; ++w) left.at[w] = reducer.combine(left.at[w], right.at[w]);
        return left;
    }
    WEFT_DEVICE void finish(const Reducer<type, adds>& reducer) {
        WEFT_UNROLL
        for (int w = 0; w < words; ++w) at[w] = reducer.finish(at[w]);
    }
};
// Rarely used reductions take less code. 8 bytes, because larger values would need a stack.
template <weftDataType_t type, bool adds>
WEFT_DEVICE_COLD Unit<type, adds, 8> combine_cold(Reducer<type, adds> reducer, Unit<type, adds, 8> left,
                                                  Unit<type, adds, 8> right) {
    return Unit<type, adds, 8>::combine(reducer, left, right);
}
template <weftDataType_t type, bool adds, int bytes>
WEFT_DEVICE Unit<type, adds, bytes> combine(const Reducer<type, adds>& reducer, const Unit<type, adds, bytes>& left,
                                            const Unit<type, adds, bytes>& right) {
    if constexpr (adds) {
        return Unit<type, adds, bytes>::combine(reducer, left, right);
    } else {
        using Half = Unit<type, adds, 8>;
        Unit<type, adds, bytes> result;
        WEFT_UNROLL
        for (int first = 0; first < Unit<type, adds, bytes>::words; first += Half::words) {
            Half one, other;
            WEFT_UNROLL
            for (int w = 0; w < Half::words; ++w) one.at[w] = left.at[first + w], other.at[w] = right.at[first + w];
            one = combine_cold<type, adds>(reducer, one, other);
            WEFT_UNROLL
            for (int w = 0; w < Half::words; ++w) result.at[first + w] = one.at[w];
        }
        return result;
    }
}

// A unit of this rank's input, scaled. Rarely used.
template <weftDataType_t type, bool adds>
WEFT_DEVICE_COLD Pack<8> scaled_half(Reducer<type, adds> reducer, Pack<8> half) {
    auto wide = Unit<type, adds, 8>::widen(half);
    WEFT_UNROLL
    for (auto& word : wide.at) word = reducer.scale(word);
    return wide.rounded();
}
template <weftDataType_t type, bool adds, int bytes>
WEFT_DEVICE Pack<bytes> scaled_unit(const Reducer<type, adds>& reducer, Pack<bytes> unit) {
    WEFT_UNROLL
    for (int word = 0; word < bytes / 4; word += 2) {
        const Pack<8> half = scaled_half<type, adds>(reducer, {{unit.words[word], unit.words[word + 1]}});
        unit.words[word] = half.words[0];
        unit.words[word + 1] = half.words[1];
    }
    return unit;
}

}  // namespace weft::internal::cuda
