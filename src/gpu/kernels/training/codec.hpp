// codec.hpp: the kernels that turn blocks of float32 numbers into whole numbers with a scale, and back: with the bits of
// the host's codecs. A block of threads takes blocks of numbers in turn.
#pragma once
#include "src/base/block_scale.hpp"
#include "src/gpu/kernels/device.hpp"
#include "src/gpu/kernels/training/codec_arguments.hpp"

namespace weft::internal::cuda {

// Memory of one block of threads.
struct CodecBlock {
    uint32_t largest[codec_threads];  // by thread
};

struct NumberBlock {
    uint64_t number, begin, end;
};

class CodecKernel {
  public:
    WEFT_DEVICE CodecKernel(const Team& team, const CodecArguments& arguments) : team_(team), a_(arguments) {
        blocks_ = (a_.count + a_.block - 1) / a_.block;
        small_ = a_.message + blocks_ * sizeof(float);
    }

    WEFT_DEVICE void encode(CodecBlock& shared) const {
        for (uint64_t b = uint64_t(team_.block); b < blocks_; b += uint64_t(team_.blocks)) {
            const NumberBlock block = block_at(b);
            const BlockScale scale = scale_to(highest_number(a_.bits), largest_bits(block, shared));
            if (team_.thread == 0) write_scale(b, scale.scale);
            if (a_.bits == 8)
                encode_bytes(block, scale.inverse);
            else
                encode_halves(block, scale.inverse);
        }
    }
    WEFT_DEVICE void decode() const {
        for (uint64_t b = uint64_t(team_.block); b < blocks_; b += uint64_t(team_.blocks)) {
            const NumberBlock block = block_at(b);
            const float scale = read_scale(b);
            for (uint64_t i = first(block); i < block.end; i += uint64_t(team_.threads))
                a_.numbers[i] = float(a_.bits == 8 ? int(int8_t(small_[i])) : half_at(i)) * scale;
        }
    }

  private:
    WEFT_DEVICE NumberBlock block_at(uint64_t b) const {
        const uint64_t begin = b * a_.block;
        return {b, begin, a_.count - begin < a_.block ? a_.count : begin + a_.block};
    }
    WEFT_DEVICE uint64_t first(const NumberBlock& block) const { return block.begin + uint64_t(team_.thread); }

    WEFT_DEVICE uint32_t largest_bits(const NumberBlock& block, CodecBlock& shared) const {
        uint32_t largest = 0;
        for (uint64_t i = first(block); i < block.end; i += uint64_t(team_.threads)) {
            const uint32_t bits = magnitude_bits(a_.numbers[i]);
            largest = bits > largest ? bits : largest;
        }
        team_.barrier();  // all threads have read the last block's result
        shared.largest[team_.thread] = largest;
        // In each round the upper half joins the lower one.
        for (int left = team_.threads; left > 1;) {
            const int half = (left + 1) / 2;
            team_.barrier();
            if (team_.thread + half < left) {
                const uint32_t other = shared.largest[team_.thread + half];
                if (other > shared.largest[team_.thread]) shared.largest[team_.thread] = other;
            }
            left = half;
        }
        team_.barrier();
        return shared.largest[0];
    }
    WEFT_DEVICE void encode_bytes(const NumberBlock& block, float inverse) const {
        for (uint64_t i = first(block); i < block.end; i += uint64_t(team_.threads))
            small_[i] = static_cast<unsigned char>(rounded_bits(a_.numbers[i] * inverse));
    }
    WEFT_DEVICE void encode_halves(const NumberBlock& block, float inverse) const {
        for (uint64_t i = block.begin + 2 * uint64_t(team_.thread); i < block.end; i += 2 * uint64_t(team_.threads)) {
            const uint32_t low = rounded_bits(a_.numbers[i] * inverse) & 0xfu;
            const uint32_t high = i + 1 < block.end ? rounded_bits(a_.numbers[i + 1] * inverse) & 0xfu : 0;
            small_[i / 2] = static_cast<unsigned char>(low | high << 4);
        }
    }
    WEFT_DEVICE int half_at(uint64_t i) const {
        const int bits = int(small_[i / 2]) >> i % 2 * 4 & 0xf;
        return bits < 8 ? bits : bits - 16;
    }
    // Messages follow each other at any byte.
    WEFT_DEVICE void write_scale(uint64_t block, float scale) const {
        const uint32_t bits = __builtin_bit_cast(uint32_t, scale);
        for (unsigned byte = 0; byte < sizeof bits; ++byte)
            a_.message[block * sizeof bits + byte] = static_cast<unsigned char>(bits >> 8 * byte);
    }
    WEFT_DEVICE float read_scale(uint64_t block) const {
        uint32_t bits = 0;
        for (unsigned byte = 0; byte < sizeof bits; ++byte)
            bits |= uint32_t(a_.message[block * sizeof bits + byte]) << 8 * byte;
        return __builtin_bit_cast(float, bits);
    }

    const Team& team_;
    const CodecArguments& a_;
    uint64_t blocks_;
    unsigned char* small_;
};

}  // namespace weft::internal::cuda
