// unit_gathers.hpp: gathers whole units from the shards of all ranks, also ahead of their use, and releases them.
#pragma once
#include <vector>

#include "src/train/launch_queue.hpp"
#include "src/train/memory_space.hpp"
#include "src/train/sharding/buffer_pool.hpp"
#include "src/train/sharding/gather_trace.hpp"
#include "src/train/sharding/quantized_shards.hpp"
#include "src/train/sharding/shard_groups.hpp"
#include "src/train/sharding/unit.hpp"

namespace weft::internal::train {

// All ranks make the same calls. The objects that it is made with must outlive it. Thread-bound.
class UnitGathers {
  public:
    // With keeps_wholes a released unit keeps its memory, and its values until finish().
    UnitGathers(MemorySpace& space, const ShardGroups& groups, std::vector<Unit>& units, bool keeps_wholes,
                const Quantization& quantization);
    // `staging` is memory for messages of units that are sharded by rows. The launches use it in turn.
    Status reserve(LaunchQueue& queue, std::byte* staging);

    // Waits for a unit that is not gathered. Then gathered() launches the gather of the one that came next in the last
    // iteration.
    Status gather(int number);
    Status gathered(int number);
    // Of a gathered unit.
    Status release(int number, bool after_forward);
    // No launch is in progress, and no unit is gathered: values that were kept are dropped.
    void finish();

    uint64_t elements() const { return elements_; }
    // Received from other ranks.
    const Traffic& traffic() const { return traffic_; }

  private:
    // Units that stay have memory of their own size. The others take some of the pool.
    bool has_own_whole(const Unit& unit) const;
    Status start(Unit& unit);
    // In the thread of the launches.
    Status gather_whole(const Unit& unit, bool from_secondary);
    // The shards of all ranks in the type of whole units, one behind the other.
    Status gather_shards(const Unit& unit, std::byte* gathered);
    // This rank's shard in the type of whole units. `place` is memory for it, which is used if it is copied anyhow.
    Result<const std::byte*> sent_shard(const Unit& unit, std::byte* place);
    Traffic traffic_of(const Unit& unit) const;
    void drop(Unit& unit);

    MemorySpace* space_;
    const ShardGroups* groups_;
    std::vector<Unit>* units_;
    bool keeps_wholes_;
    LaunchQueue* queue_ = nullptr;
    std::byte* staging_ = nullptr;
    FlatBuffer arrived_;    // a shard of host memory that must be converted or encoded. The launches use it in turn
    FlatBuffer converted_;  // a shard in the type of whole units. The launches use it in turn
    QuantizedGather quantized_;  // likewise
    BufferPool wholes_;
    GatherTrace trace_;
    uint64_t elements_ = 0;  // that were gathered
    Traffic traffic_;
};

}  // namespace weft::internal::train
