#include "src/train/hooks/compressed_exchange.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "src/base/arithmetic.hpp"
#include "src/train/hooks/largest_numbers.hpp"
#include "src/train/peers.hpp"

namespace weft::internal::train {

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

struct Scale {
    float scale = 0, inverse = 0;
};
// Maps `largest` to `highest`, and an infinity or NaN to NaN. Numbers whose scale would be subnormal count as zero: its
// inverse may overflow.
Scale scale_to(float highest, float largest) {
    if (!std::isfinite(largest)) return {not_a_number, 0};
    if (largest < highest * std::numeric_limits<float>::min()) return {};
    return {largest / highest, highest / largest};
}

}  // namespace

size_t OneBitCodec::part_unit(int ranks) const { return std::lcm(size_t(8), size_t(ranks)); }

void OneBitCodec::begin(std::span<const float> numbers) {
    double squares = 0;
    for (const float number : numbers) squares += double(number) * double(number);
    scale_ = numbers.empty() ? 0 : float(std::sqrt(squares / double(numbers.size())));
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
    // Adding it rounds to a whole number, which the lowest bits hold then.
    constexpr float magic = 0x1.8p23f;
    std::byte* const small = message + (numbers.size() + block_ - 1) / block_ * sizeof(float);
    for (size_t begin = 0; begin < numbers.size(); begin += block_) {
        const auto block = numbers.subspan(begin, std::min(block_, numbers.size() - begin));
        const Scale scale = scale_to(127, largest_magnitude(block));
        memcpy(message + begin / block_ * sizeof(float), &scale.scale, sizeof(float));
        for (size_t i = 0; i < block.size(); ++i)
            small[begin + i] = std::byte(std::bit_cast<uint32_t>(block[i] * scale.inverse + magic) & 0xffu);
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

void Float8Codec::begin(std::span<const float> numbers) {
    const Scale scale = scale_to(type_ == weftFloat8e4m3 ? 448.0f : 57344.0f, largest_magnitude(numbers));
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

NumberRange part_of(size_t count, int ranks, int rank, size_t unit) {
    const size_t each = (count + size_t(ranks) * unit - 1) / (size_t(ranks) * unit) * unit;
    const size_t begin = std::min(count, each * size_t(rank));
    return {begin, std::min(each, count - begin)};
}

Status CompressedExchange::run(const Peers& peers, Codec& codec, double divisor, std::span<float> numbers,
                               std::span<float> own_error, std::span<float> sum_error) {
    const int ranks = peers.ranks();
    const size_t unit = codec.part_unit(ranks);
    const auto part = [&](int rank) { return part_of(numbers.size(), ranks, rank, unit); };
    const size_t bytes = codec.bytes(part(0).count);
    sent_.resize(bytes * size_t(ranks));
    received_.resize(bytes * size_t(ranks));
    decoded_.resize(part(0).count);
    codec.begin(numbers);
    for (int rank = 0; rank < ranks; ++rank) {
        const NumberRange own = part(rank);
        std::byte* const message = sent_.data() + bytes * size_t(rank);
        codec.encode(numbers.subspan(own.begin, own.count), message);
        if (own_error.empty()) continue;
        codec.decode(message, {decoded_.data(), own.count});
        for (size_t i = 0; i < own.count; ++i) own_error[own.begin + i] = numbers[own.begin + i] - decoded_[i];
    }
    WEFT_TRY(peers.all_to_all(sent_.data(), received_.data(), bytes));
    const NumberRange mine = part(peers.rank());
    const std::span<float> decoded(decoded_.data(), mine.count);
    sum_.assign(mine.count, 0);
    for (int rank = 0; rank < ranks; ++rank) {
        codec.decode(received_.data() + bytes * size_t(rank), decoded);
        for (size_t i = 0; i < mine.count; ++i) sum_[i] += decoded[i];
    }
    const auto over = float(divisor);
    for (size_t i = 0; i < mine.count; ++i) sum_[i] = sum_[i] / over + (sum_error.empty() ? 0 : sum_error[i]);
    codec.begin(sum_);
    codec.encode(sum_, sent_.data());
    if (!sum_error.empty()) {
        codec.decode(sent_.data(), decoded);
        for (size_t i = 0; i < mine.count; ++i) sum_error[i] = sum_[i] - decoded[i];
    }
    WEFT_TRY(peers.all_gather(sent_.data(), received_.data(), bytes));
    for (int rank = 0; rank < ranks; ++rank) {
        const NumberRange each = part(rank);
        codec.decode(received_.data() + bytes * size_t(rank), numbers.subspan(each.begin, each.count));
    }
    return ok();
}

}  // namespace weft::internal::train
