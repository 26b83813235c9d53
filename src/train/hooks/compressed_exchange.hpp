// compressed_exchange.hpp: an all-reduce whose messages are compressed, and the forms of its messages.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "src/base/result.hpp"
#include "weft/types.h"

namespace weft::internal::train {

class Peers;

// Turns float32 numbers into a message. If a number is infinite or a NaN, a decoded number is, too. Thread-bound.
class Codec {
  public:
    Codec() = default;
    Codec(const Codec&) = delete;
    Codec& operator=(const Codec&) = delete;
    virtual ~Codec() = default;

    // Parts have a multiple of so many numbers, except for the last one.
    virtual size_t part_unit(int ranks) const = 0;
    virtual size_t bytes(size_t count) const = 0;
    // Is called before the parts of `numbers` are encoded.
    virtual void begin(std::span<const float> /*numbers*/) {}
    virtual void encode(std::span<const float> numbers, std::byte* message) const = 0;
    virtual void decode(const std::byte* message, std::span<float> numbers) const = 0;
};

// The sign of each number, and one scale for all of them: their Euclidean norm divided by the square root of their
// count. The sign of zero is +. Source: Tang et al., "1-bit Adam", ICML 2021.
class OneBitCodec : public Codec {
  public:
    size_t part_unit(int ranks) const override;
    size_t bytes(size_t count) const override { return sizeof(float) + (count + 7) / 8; }
    void begin(std::span<const float> numbers) override;
    void encode(std::span<const float> numbers, std::byte* message) const override;
    void decode(const std::byte* message, std::span<float> numbers) const override;

  private:
    float scale_ = 0;
};

// Blocks of whole numbers from -127 to 127 with a float32 scale each. The error of a number is at most 1/254 of the
// largest magnitude in its block.
class Int8Codec : public Codec {
  public:
    explicit Int8Codec(size_t block) : block_(block) {}
    size_t part_unit(int) const override { return block_; }
    size_t bytes(size_t count) const override { return (count + block_ - 1) / block_ * sizeof(float) + count; }
    void encode(std::span<const float> numbers, std::byte* message) const override;
    void decode(const std::byte* message, std::span<float> numbers) const override;

  private:
    size_t block_;
};

// float8 and one scale: the largest magnitude becomes the largest number of the type.
class Float8Codec : public Codec {
  public:
    explicit Float8Codec(weftDataType_t type) : type_(type) {}
    size_t part_unit(int) const override { return 1; }
    size_t bytes(size_t count) const override { return sizeof(float) + count; }
    void begin(std::span<const float> numbers) override;
    void encode(std::span<const float> numbers, std::byte* message) const override;
    void decode(const std::byte* message, std::span<float> numbers) const override;

  private:
    weftDataType_t type_;
    float scale_ = 0, inverse_ = 0;
};

// The part of `count` numbers that a rank adds up.
struct NumberRange {
    size_t begin = 0, count = 0;
};
NumberRange part_of(size_t count, int ranks, int rank, size_t unit);

// Two steps: each rank receives its part from all ranks and adds that up in float32; then all ranks receive the sums.
// Keeps its messages' memory. Thread-bound.
class CompressedExchange {
  public:
    // `numbers` become the sum over all ranks divided by `divisor`; all ranks get the same bits. If they are not empty:
    // `own_error` becomes the numbers less what was sent of them. `sum_error`, of this rank's part, is added to the
    // part's result, and becomes that less what was sent of it.
    Status run(const Peers& peers, Codec& codec, double divisor, std::span<float> numbers, std::span<float> own_error,
               std::span<float> sum_error);

  private:
    std::vector<std::byte> sent_, received_;
    std::vector<float> sum_, decoded_;
};

}  // namespace weft::internal::train
