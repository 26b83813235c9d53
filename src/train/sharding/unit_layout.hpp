// unit_layout.hpp: where each parameter of a unit lies: in the whole unit, and in each rank's shard. Values.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "src/train/bucket_layout.hpp"

namespace weft::internal::train {

// flat: each rank has an equal part of the unit's bytes, as in ZeRO. rows: each rank has rows of every parameter, as in
// PyTorch's FSDP2.
enum class Sharding : uint8_t { flat, rows };

// A rank's part of a parameter: a range of its elements.
struct Piece {
    size_t begin = 0, count = 0;  // elements of the parameter
    size_t shard_offset = 0;      // bytes, in the rank's shard
    bool operator==(const Piece&) const = default;
};

// The parameters of one type lie one behind the other, in the whole unit and in each shard.
struct Segment {
    weftDataType_t type = weftFloat32;
    std::vector<int> parameters;  // indices in the unit
    size_t whole_offset = 0;      // bytes, in the whole unit
    size_t whole_count = 0;       // elements
    // Of each rank's shard, with padding. With rows they are equal; flat, only if the unit has one type.
    std::vector<size_t> counts;         // elements
    std::vector<size_t> shard_offsets;  // bytes
};

// Every shard has shard_bytes. Only with flat sharding the shards of all ranks, one behind the other, are the whole
// unit and its padding.
class UnitLayout {
  public:
    // A flat shard has a multiple of `alignment` bytes: itself a multiple of every element's size, so that the bounds
    // of shards cut no element.
    UnitLayout(std::vector<TensorFacts> parameters, int ranks, Sharding sharding, size_t alignment = 16);

    Sharding sharding() const { return sharding_; }
    int ranks() const { return ranks_; }
    std::span<const TensorFacts> parameters() const { return parameters_; }
    std::span<const Segment> segments() const { return segments_; }
    size_t whole_offset(int parameter) const { return whole_offsets_[size_t(parameter)]; }
    // With flat sharding this includes padding.
    size_t whole_bytes() const { return whole_bytes_; }
    // The parameters lie before it, without gaps.
    size_t padding_bytes() const { return padding_bytes_; }
    size_t shard_bytes() const { return shard_bytes_; }
    Piece piece(int parameter, int rank) const;

  private:
    void place_flat(size_t alignment);
    void place_rows();

    std::vector<TensorFacts> parameters_;
    int ranks_;
    Sharding sharding_;
    std::vector<Segment> segments_;
    std::vector<size_t> whole_offsets_;
    std::vector<size_t> shard_offsets_;  // of each parameter; with rows only
    size_t whole_bytes_ = 0, padding_bytes_ = 0, shard_bytes_ = 0;
};

// The rows of a rank: as torch.chunk, all ranks have ceil(rows / ranks) until none are left.
struct Rows {
    size_t begin = 0, count = 0;
};
Rows rows_of(size_t rows, int ranks, int rank);

}  // namespace weft::internal::train
