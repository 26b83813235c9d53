#include "src/train/hooks/codecs.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>

#include "src/base/arithmetic.hpp"
#include "src/base/block_scale.hpp"
#include "src/kernels/cpu_kernels.hpp"
#include "src/train/hooks/largest_numbers.hpp"

namespace weft::internal::train {

void read_numbers(float* to, const void* from, size_t count, weftDataType_t type) {
    if (type == weftFloat32)
        std::copy_n(static_cast<const float*>(from), count, to);
    else if (type == weftFloat64)
        std::transform(static_cast<const double*>(from), static_cast<const double*>(from) + count, to,
                       [](double number) { return float(number); });
    else
        cpu_kernels().widen[type](to, from, count);
}

void write_numbers(void* to, const float* from, size_t count, weftDataType_t type) {
    if (type == weftFloat32)
        std::copy_n(from, count, static_cast<float*>(to));
    else if (type == weftFloat64)
        std::copy_n(from, count, static_cast<double*>(to));
    else
        cpu_kernels().narrow[type](to, from, count);
}

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

BlockScale scale_of(float highest, std::span<const float> numbers) {
    return scale_to(highest, magnitude_bits(largest_magnitude(numbers)));
}

}  // namespace

size_t OneBitCodec::part_unit(int ranks) const { return std::lcm(size_t(8), size_t(ranks)); }

void OneBitCodec::begin(std::span<const float> numbers) {
    scale_ = float(root_mean_square(numbers));
    if (!std::isfinite(scale_)) scale_ = not_a_number;
}

void OneBitCodec::encode(std::span<const float> numbers, std::byte* message) const {
    memcpy(message, &scale_, sizeof scale_);
    message += sizeof scale_;
    for (size_t i = 0; i < numbers.size(); i += 8) {
        unsigned bits = 0;
        for (size_t k = 0; k < std::min<size_t>(8, numbers.size() - i); ++k)
            bits |= (numbers[i + k] >= 0 ? 1u : 0u) << k;
        message[i / 8] = std::byte(bits);
    }
}

void OneBitCodec::decode(const std::byte* message, std::span<float> numbers) const {
    float scale = 0;
    memcpy(&scale, message, sizeof scale);
    message += sizeof scale;
    for (size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = (unsigned(message[i / 8]) >> (i % 8) & 1u) != 0 ? scale : -scale;
}

void Int8Codec::encode(std::span<const float> numbers, std::byte* message) const {
    std::byte* const small = message + (numbers.size() + block_ - 1) / block_ * sizeof(float);
    for (size_t begin = 0; begin < numbers.size(); begin += block_) {
        const auto block = numbers.subspan(begin, std::min(block_, numbers.size() - begin));
        const BlockScale scale = scale_of(highest_number(8), block);
        memcpy(message + begin / block_ * sizeof(float), &scale.scale, sizeof(float));
        for (size_t i = 0; i < block.size(); ++i)
            small[begin + i] = std::byte(rounded_bits(block[i] * scale.inverse) & 0xffu);
    }
}

void Int8Codec::decode(const std::byte* message, std::span<float> numbers) const {
    const std::byte* const small = message + (numbers.size() + block_ - 1) / block_ * sizeof(float);
    for (size_t begin = 0; begin < numbers.size(); begin += block_) {
        float scale = 0;
        memcpy(&scale, message + begin / block_ * sizeof(float), sizeof scale);
        const size_t end = std::min(begin + block_, numbers.size());
        for (size_t i = begin; i < end; ++i) numbers[i] = float(int8_t(small[i])) * scale;
    }
}

void Int4Codec::encode(std::span<const float> numbers, std::byte* message) const {
    std::byte* const small = message + (numbers.size() + block_ - 1) / block_ * sizeof(float);
    std::fill_n(small, (numbers.size() + 1) / 2, std::byte(0));
    for (size_t begin = 0; begin < numbers.size(); begin += block_) {
        const auto block = numbers.subspan(begin, std::min(block_, numbers.size() - begin));
        const BlockScale scale = scale_of(highest_number(4), block);
        memcpy(message + begin / block_ * sizeof(float), &scale.scale, sizeof(float));
        for (size_t i = 0; i < block.size(); ++i)
            small[(begin + i) / 2] |= std::byte((rounded_bits(block[i] * scale.inverse) & 0xfu) << (begin + i) % 2 * 4);
    }
}

void Int4Codec::decode(const std::byte* message, std::span<float> numbers) const {
    const std::byte* const small = message + (numbers.size() + block_ - 1) / block_ * sizeof(float);
    for (size_t begin = 0; begin < numbers.size(); begin += block_) {
        float scale = 0;
        memcpy(&scale, message + begin / block_ * sizeof(float), sizeof scale);
        const size_t end = std::min(begin + block_, numbers.size());
        for (size_t i = begin; i < end; ++i) {
            const int bits = int(small[i / 2]) >> i % 2 * 4 & 0xf;
            numbers[i] = float(bits < 8 ? bits : bits - 16) * scale;
        }
    }
}

void Float8Codec::begin(std::span<const float> numbers) {
    const BlockScale scale = scale_of(highest_float8(type_), numbers);
    scale_ = scale.scale;
    inverse_ = scale.inverse;
}

void Float8Codec::encode(std::span<const float> numbers, std::byte* message) const {
    memcpy(message, &scale_, sizeof scale_);
    std::byte* const small = message + sizeof scale_;
    const auto all = [&]<weftDataType_t type>() {
        for (size_t i = 0; i < numbers.size(); ++i)
            small[i] = std::byte(Arithmetic<type>::round(numbers[i] * inverse_));
    };
    if (type_ == weftFloat8e4m3)
        all.operator()<weftFloat8e4m3>();
    else
        all.operator()<weftFloat8e5m2>();
}

void Float8Codec::decode(const std::byte* message, std::span<float> numbers) const {
    float scale = 0;
    memcpy(&scale, message, sizeof scale);
    const std::byte* const small = message + sizeof scale;
    const auto all = [&]<weftDataType_t type>() {
        for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = Arithmetic<type>::widen(uint8_t(small[i])) * scale;
    };
    if (type_ == weftFloat8e4m3)
        all.operator()<weftFloat8e4m3>();
    else
        all.operator()<weftFloat8e5m2>();
}

}  // namespace weft::internal::train
