// quantized_shards.hpp: gathers and reductions of a unit whose messages are small whole numbers, with a scale for each
// block. Source: Wang et al., "ZeRO++", 2023.
#pragma once
#include <span>
#include <vector>

#include "src/train/hooks/codecs.hpp"
#include "src/train/sharding/shard_groups.hpp"
#include "src/train/sharding/unit.hpp"

namespace weft::internal::train {

// Bits of a number: 0: it is sent as it is. Values.
struct Quantization {
    int gather_bits = 0, reduce_bits = 0;
    size_t block = 256;  // elements with one scale
    bool any() const { return gather_bits > 0 || reduce_bits > 0; }
};

// The memory of both. A message has the elements of a rank's shard, one segment behind the other.
// Thread-bound, to the thread of the launches, except what is const.
class QuantizedShards {
  public:
    QuantizedShards(MemorySpace& space, int bits, size_t block);
    bool used() const { return form_.bits > 0; }
    // All messages have the bytes of the largest one.
    size_t message_bytes(const UnitLayout& layout) const;

  protected:
    // `messages`: of a call. `shards`: numbers of so many shards are kept.
    Status reserve(const UnitLayout& layout, size_t messages, size_t shards);
    static size_t elements(const UnitLayout& layout, int rank);
    static size_t most_elements(const UnitLayout& layout);
    // As float32.
    Status read(float* numbers, const std::byte* elements, size_t count, weftDataType_t type);
    // Rounds the numbers of a rank's shard to their types.
    Status write_shard(const UnitLayout& layout, int rank, const float* numbers, std::byte* shard);
    float* numbers() const { return reinterpret_cast<float*>(numbers_.data()); }

    MemorySpace* space_;
    WholeNumbers form_;  // 0 bits: not used
    FlatBuffer sent_, received_, numbers_;
};

class QuantizedGather : public QuantizedShards {
  public:
    using QuantizedShards::QuantizedShards;
    Status reserve(const std::vector<Unit>& units);
    // The shards of all ranks become `gathered`, one behind the other, in the type of whole units. All ranks get the
    // same bits, also of their own shard. `shard` is the own one, in memory of the space.
    Status run(const Peers& peers, const Unit& unit, const std::byte* shard, std::byte* gathered);
};

// Where a shard's elements of each segment lie in a whole gradient.
struct WholeGradient {
    std::vector<const std::byte*> segments;  // the elements of all ranks, one behind the other
};

class QuantizedReduction : public QuantizedShards {
  public:
    using QuantizedShards::QuantizedShards;
    Status reserve(const std::vector<Unit>& units, int hosts);
    // The sum over the shard group, times a factor for each segment, becomes `shard`. Numbers are added in float32. With
    // groups.has_hops() there are two all-to-alls: within the host, and between hosts.
    Status run(const ShardGroups& groups, const UnitLayout& layout, const WholeGradient& gradient,
               std::span<const double> factors, std::byte* shard);

  private:
    Status encode(const UnitLayout& layout, int rank, const WholeGradient& gradient, std::byte* message);
    // The sum of `count` messages, `stride` bytes apart.
    Status add_up(const std::byte* messages, size_t stride, int count, std::span<float> sum);
};

}  // namespace weft::internal::train
