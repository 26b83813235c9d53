// unit_reduction.hpp: reduces the whole gradient of a unit to the shards of all ranks.
#pragma once
#include "src/train/memory_space.hpp"
#include "src/train/sharding/gradient_division.hpp"
#include "src/train/sharding/quantized_shards.hpp"
#include "src/train/sharding/shard_groups.hpp"
#include "src/train/sharding/unit.hpp"

namespace weft::internal::train {

// Where a reduction puts its result. It is fixed when it is launched, because later calls change the unit.
struct ReductionPlan {
    bool synchronizes = true;  // over replicas
    bool adds_gradient = false, adds_partial = false;
};

// stage() and over_shards() belong to the thread of the shard group's launches, and over_replicas() to that of the replicas'. The
// space and the groups must outlive it.
class UnitReduction {
  public:
    // `divisor` 0: the number of all ranks.
    UnitReduction(MemorySpace& space, const ShardGroups& groups, double divisor, const Quantization& quantization);
    Status reserve(const std::vector<Unit>& units, int hosts);

    // Without reductions in progress: memory between iterations.
    void discard();
    // Of over_shards(), if each part goes to its rank by itself.
    Traffic traffic(const Unit& unit) const;

    // Before over_shards(), if a unit has staging_bytes(): converts the gradient, and orders it by ranks and types, with
    // zeros as padding. over_shards() does not read the gradient then.
    Status stage(const Unit& unit, const std::byte* gradient, std::byte* staging);
    // The sum over the shard group. Without replicas it completes the gradient shard.
    Status over_shards(Unit& unit, const ReductionPlan& plan, const std::byte* gradient, const std::byte* staging);
    // The rest, if there are replicas and the plan synchronises.
    Status over_replicas(Unit& unit, const ReductionPlan& plan);

  private:
    GradientDivision division(weftDataType_t type) const;
    Status reduce_to(const Unit& unit, const std::byte* source, bool staged, std::byte* shard);
    Status reduce_quantized(const Unit& unit, const std::byte* source, bool staged, std::byte* shard);
    Status divide_after(const Unit& unit, std::byte* shard);
    // to += from
    Status add(const UnitLayout& layout, std::byte* to, const std::byte* from);
    // Where reductions change the gradient shard.
    std::byte* shard_of(const Unit& unit) const;
    // Writes or adds a complete reduction to the gradient shard, unless it lies there.
    Status keep(Unit& unit, const ReductionPlan& plan, const std::byte* reduced);
    Status merge(const Unit& unit, const ReductionPlan& plan, const std::byte* reduced, std::byte* shard);
    // Whether the gradient shard itself can be reduced.
    static bool in_place(const Unit& unit, const ReductionPlan& plan);

    MemorySpace* space_;
    const ShardGroups* groups_;
    double divisor_;
    FlatBuffer sum_;  // of the shard group, before it is added to another
    QuantizedReduction quantized_;
    FlatBuffer converted_;        // a complete reduction, before it is added
    FlatBuffer shard_on_device_;  // a gradient shard of host memory. The launches use it in turn
};

}  // namespace weft::internal::train
