// codecs.hpp: forms of messages with fewer bytes than their float32 numbers.
#pragma once
#include <cstddef>
#include <span>

#include "weft/types.h"

namespace weft::internal::train {

// Elements of a floating type as float32, and back: rounded to the type.
void read_numbers(float* to, const void* from, size_t count, weftDataType_t type);
void write_numbers(void* to, const float* from, size_t count, weftDataType_t type);

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

// The same with whole numbers from -7 to 7, two in each byte: the lower half first. The error of a number is at most 1/14
// of the largest magnitude in its block.
class Int4Codec : public Codec {
  public:
    explicit Int4Codec(size_t block) : block_(block) {}
    size_t part_unit(int) const override { return block_; }
    size_t bytes(size_t count) const override {
        return (count + block_ - 1) / block_ * sizeof(float) + (count + 1) / 2;
    }
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

// Whole numbers of so many bits with a scale for each block: the form of Int8Codec and Int4Codec. Values.
struct WholeNumbers {
    int bits = 8;        // or 4
    size_t block = 256;  // numbers with one scale

    template <class Body>
    auto with_codec(Body&& body) const {
        return bits == 4 ? body(Int4Codec(block)) : body(Int8Codec(block));
    }
    size_t bytes(size_t count) const {
        return with_codec([&](const Codec& codec) { return codec.bytes(count); });
    }
};

}  // namespace weft::internal::train
