// unit_gradients.hpp: whole gradients while they are computed, and their reductions in the order of the calls.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "src/train/launch_queue.hpp"
#include "src/train/memory_space.hpp"
#include "src/train/sharding/buffer_pool.hpp"
#include "src/train/sharding/shard_groups.hpp"
#include "src/train/sharding/sharding_plan.hpp"
#include "src/train/sharding/unit.hpp"
#include "src/train/sharding/unit_reduction.hpp"

namespace weft::internal::train {

// All ranks make the same calls, except whole(). The objects that it is made with must outlive it. Thread-bound.
class UnitGradients {
  public:
    UnitGradients(MemorySpace& space, const ShardGroups& groups, std::vector<Unit>& units, const ShardingPlan& plan);
    // `hosts`: of a shard group, if quantised gradients go in two hops; otherwise 1.
    // `staging` is memory for messages of units that are sharded by rows. The launches use it in turn.
    Status reserve(LaunchQueue& queue, std::byte* staging, bool has_replicas, int hosts);

    // The whole gradient of a unit: zeros, unless it is being computed or the plan overwrites gradients.
    Result<std::byte*> whole(int number);
    // Without `synchronizes` the sum stays one of the shard group.
    Status reduce(int number, bool synchronizes);
    // Waits for the reductions, after those of the shard group. Then only reduced gradients have memory.
    Status finish();
    // Reduced gradients lose their memory, too, where the space can give it back. Its addresses stay.
    void zero();
    // Whether memory that stayed has numbers that were zeroed, and no new ones.
    bool has_old() const;
    // Makes them zeros. No copy from or to host memory of shards is in progress.
    Status zero_old();
    // Ends the launches for replicas. The queue of the shard group, which adds to them, has ended before.
    void end() { replica_queue_.reset(); }

    uint64_t elements() const { return elements_; }
    // Sent to other ranks of shard groups.
    const Traffic& traffic() const { return traffic_; }

  private:
    // As whole(). The zeros are work of the caller's stream, or of the own one.
    Result<std::byte*> begun(int number, bool by_caller);
    Status fill(const Unit& unit, bool by_caller);
    // Memory for a whole gradient. Waits for a reduction rather than allocating more. If none is in progress, because
    // the gradients of other units are kept, the unit gets memory of its own.
    Status take(Unit& unit);
    // The caller's stream uses memory of the pool behind its allocation by the own one.
    Status mark_pooled(const Unit& unit);
    // For a whole gradient that serves no other unit.
    Status allocate_own(Unit& unit);
    // Of whole gradients and of sums that no later iteration needs.
    void discard();
    // Takes memory back that reductions have read.
    void reclaim();
    // `synchronizes` is as the caller said it, also where the plan synchronizes because there are no replicas.
    Status launch(Unit& unit, const ReductionPlan& plan, bool synchronizes);

    struct Reducing {
        LaunchQueue::Ticket ticket;
        FlatBuffer gradient;
    };

    MemorySpace* space_;
    const ShardGroups* groups_;
    std::vector<Unit>* units_;
    struct Rules {
        bool keeps_wholes;  // each unit has its own memory for its whole gradient
        bool overwrites;    // the caller writes every element
        bool pools;         // whole gradients go back to a device's pool
    };
    Rules rules_;
    LaunchQueue* queue_ = nullptr;
    std::byte* staging_ = nullptr;
    BufferPool wholes_;
    int buffers_ = 0;  // of it
    UnitReduction reduction_;
    std::vector<Reducing> reducing_;  // in the order of the launches
    std::map<const std::byte*, std::unique_ptr<StreamPlace>>
        read_at_;            // when a reduction has read a whole gradient, on a device
    uint64_t elements_ = 0;  // that were reduced
    Traffic traffic_;
    std::unique_ptr<LaunchQueue> replica_queue_;  // null without replicas. Its thread uses the others
};

}  // namespace weft::internal::train
