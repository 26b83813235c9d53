// hook_messages.hpp: the messages of compressing hooks that have one scale: signs, and float8. Their form is that of
// OneBitCodec and Float8Codec (src/train/hooks/codecs.hpp).
#pragma once
#include "src/base/arithmetic.hpp"
#include "src/base/block_scale.hpp"
#include "src/gpu/kernels/training/hook_elements.hpp"

namespace weft::internal::cuda {

// Messages follow each other at any byte.
WEFT_DEVICE void write_float(unsigned char* at, float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    for (unsigned byte = 0; byte < sizeof bits; ++byte) at[byte] = static_cast<unsigned char>(bits >> 8 * byte);
}
WEFT_DEVICE float read_float(const unsigned char* at) {
    uint32_t bits = 0;
    for (unsigned byte = 0; byte < sizeof bits; ++byte) bits |= uint32_t(at[byte]) << 8 * byte;
    return __builtin_bit_cast(float, bits);
}

WEFT_DEVICE void encode_bits(const Team& team, const HookArguments& a) {
    const NumbersOfThread own(team);
    auto* const message = static_cast<unsigned char*>(a.memory);
    if (own.first == 0) write_float(message, a.facts->root_mean_square);
    for (uint64_t byte = own.first; byte < (a.count + 7) / 8; byte += own.step) {
        unsigned bits = 0;
        for (unsigned k = 0; k < 8 && byte * 8 + k < a.count; ++k)
            bits |= (a.numbers[byte * 8 + k] >= 0 ? 1u : 0u) << k;
        message[sizeof(float) + byte] = static_cast<unsigned char>(bits);
    }
}
WEFT_DEVICE void decode_bits(const Team& team, const HookArguments& a) {
    const NumbersOfThread own(team);
    const auto* const message = static_cast<const unsigned char*>(a.memory);
    const float scale = read_float(message);
    for (uint64_t i = own.first; i < a.count; i += own.step)
        a.numbers[i] = (unsigned(message[sizeof scale + i / 8]) >> (i % 8) & 1u) != 0 ? scale : -scale;
}

template <weftDataType_t type>
WEFT_DEVICE void encode_float8(const Team& team, const HookArguments& a) {
    const NumbersOfThread own(team);
    auto* const message = static_cast<unsigned char*>(a.memory);
    const BlockScale scale = scale_to(highest_float8(type), a.facts->largest_bits);
    if (own.first == 0) write_float(message, scale.scale);
    for (uint64_t i = own.first; i < a.count; i += own.step)
        message[sizeof(float) + i] = static_cast<unsigned char>(Arithmetic<type>::round(a.numbers[i] * scale.inverse));
}
template <weftDataType_t type>
WEFT_DEVICE void decode_float8(const Team& team, const HookArguments& a) {
    const NumbersOfThread own(team);
    const auto* const message = static_cast<const unsigned char*>(a.memory);
    const float scale = read_float(message);
    for (uint64_t i = own.first; i < a.count; i += own.step)
        a.numbers[i] = Arithmetic<type>::widen(message[sizeof scale + i]) * scale;
}

}  // namespace weft::internal::cuda
