// sharded.hpp: a model whose parameters are sharded in units. docs/design/sharding.md explains it.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "src/train/launch_queue.hpp"
#include "src/train/memory_space.hpp"
#include "src/train/sharding/shard_groups.hpp"
#include "src/train/sharding/sharding_plan.hpp"
#include "src/train/sharding/unit.hpp"
#include "src/train/sharding/unit_gathers.hpp"
#include "src/train/sharding/unit_gradients.hpp"

namespace weft::internal::train {

// This rank's part of a parameter.
struct ParameterShard {
    void* values = nullptr;
    void* gradient = nullptr;     // null: it has none, or an iteration is open
    size_t begin = 0, count = 0;  // elements of the parameter
};

struct ShardingCounters {
    uint64_t gathered_elements = 0, reduced_elements = 0;  // of whole units, without padding
    Traffic gathered, reduced;                             // received by gathers, sent by reductions over shards
    // Memory that is held now: for values, gradients and parts of reshard groups; of these, on the host; for whole
    // units, whole gradients and messages. The most of both at once.
    size_t shard_bytes = 0, host_bytes = 0, whole_bytes = 0, most_bytes = 0;
};

// All ranks make the same calls, except parameter(), gradient(), shard() and counters(). Thread-bound, except abort(),
// which is thread-safe.
class Sharded {
  public:
    // All ranks of `comm` call it, also one whose arguments are wrong: `own` is its error then.
    static Result<std::shared_ptr<Sharded>> make(Status own, const ShardingPlan& plan,
                                                 std::unique_ptr<MemorySpace> space, weftComm_t comm);
    Sharded(const Sharded&) = delete;
    Sharded& operator=(const Sharded&) = delete;
    // Aborts an iteration that other ranks cannot finish any more.
    ~Sharded();

    bool on_device() const { return space_->on_device(); }
    // Whether calls can use the caller's stream.
    Status check_stream(const char* function, weftStream_t callers) const { return space_->check(function, callers); }
    int unit_count() const { return int(units_.size()); }
    int parameter_count() const { return int(unit_of_.size()); }

    // Streams are the caller's, and count on a device only.
    Status gather(int number, weftStream_t stream);
    Status release(int number, bool after_forward, weftStream_t stream);
    // Without `synchronizes` the sum stays one of the shard group.
    Status reduce_scatter(int number, bool synchronizes, weftStream_t stream);
    Status finish(weftStream_t stream);
    Status zero_gradients();
    // Whether no iteration is open, there are reduced gradients, and none is still to be reduced over replicas.
    bool reduced() const;
    void abort() { groups_.abort(); }
    // Before its end: a failure that no call has returned.
    Status settle() { return ok(); }
    // An exception left a call half done.
    void end_by_exception() noexcept;

    // Of a gathered unit.
    Result<void*> parameter(int number) const;
    // The whole gradient of a gathered unit's parameter: zeros at first.
    Result<void*> gradient(int number);
    ParameterShard shard(int number) const;
    ShardingCounters counters() const;

  private:
    // Without communicators.
    Sharded(const ShardingPlan& plan, std::unique_ptr<MemorySpace> space, std::vector<Unit> units);
    Status reserve(bool has_replicas, int hosts);
    Status scatter_values(const ShardingPlan& plan);
    Status usable() const;
    // Of shards in host memory, whose units lie on a device.
    bool has_host_shards() const { return !units_.empty() && units_.front().host_shards; }
    // Keeps a failure after which the object has ended, and ends it on all ranks.
    Status ended_by(Status status);

    std::unique_ptr<MemorySpace> space_;
    ShardGroups groups_;
    std::vector<Unit> units_;
    std::vector<std::pair<int, int>> unit_of_;  // of each parameter: its unit, and its index there
    FlatBuffer staging_;
    UnitGathers gathers_;
    UnitGradients gradients_;
    bool open_ = true;  // other ranks may wait for this one: while it is made, and in an iteration
    Status failure_;
    std::unique_ptr<LaunchQueue> queue_;  // the last field: its thread uses the others
};

}  // namespace weft::internal::train
