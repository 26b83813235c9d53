// unit.hpp: one unit of a sharded model: its layout, this rank's shards, and the whole unit while it is gathered.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/base/result.hpp"
#include "src/train/flat_buffer.hpp"
#include "src/train/launch_queue.hpp"
#include "src/train/memory_space.hpp"
#include "src/train/sharding/unit_layout.hpp"

namespace weft::internal::train {

// gathering: launched ahead of its use. kept: released, but its values stay for the backward pass.
enum class UnitState : uint8_t { released, gathering, gathered, kept };

struct UnitGradient {
    FlatBuffer shard;
    FlatBuffer partial;  // sums that are not reduced over replicas yet
    FlatBuffer whole;    // while it is computed
    bool has_shard = false, has_partial = false, computing = false;
    bool has_old = false;                   // `shard` may have numbers of an earlier iteration
    bool has_own_whole = false;             // its memory serves no other unit
    LaunchQueue::Ticket read_by = 0;        // the launch that reads the whole gradient
    LaunchQueue::Ticket replicated_by = 0;  // in the queue of the replicas. Belongs to the launches for shards
};

// The elements of a unit in other types than its values: equal layouts but for the sizes of elements.
struct UnitForms {
    UnitLayout whole;     // gathered, and its gradient
    UnitLayout reduced;   // gradients while they are reduced
    UnitLayout gradient;  // reduced gradients
};

// The launch queue uses the memory of launches in progress; the rest is thread-bound.
struct Unit {
    Unit(std::string unit_name, UnitLayout unit_layout, UnitForms unit_forms, int ranks_after_forward,
         bool has_host_shards)
        : name(std::move(unit_name)),
          layout(std::move(unit_layout)),
          forms(std::move(unit_forms)),
          reshard_ranks(ranks_after_forward),
          host_shards(has_host_shards) {}

    std::string name;
    UnitLayout layout;
    UnitForms forms;
    int reshard_ranks;  // after the forward pass; 0: the whole shard group, 1: the unit is kept
    bool host_shards;   // the shards of values and reduced gradients lie in host memory, the rest on a device
    FlatBuffer shard;
    FlatBuffer secondary;  // this rank's part in the reshard group
    FlatBuffer whole;      // while it is gathered
    bool has_secondary = false;
    UnitState state = UnitState::released;
    LaunchQueue::Ticket gathered_by = 0;
    std::unique_ptr<StreamPlace> gathered_at;  // on a device
    weftStream_t callers = nullptr;            // the stream that uses it
    UnitGradient gradient;
};

uint64_t elements_of(const Unit& unit);
// Bytes of a rank's part of the whole unit in a reshard group.
size_t secondary_bytes(const Unit& unit);
// Bytes of the memory for a whole unit.
size_t whole_capacity(const Unit& unit);
// Bytes of the shards of all ranks.
size_t message_bytes(const UnitLayout& layout);
// Whether one type must become another one.
bool converts(const UnitLayout& from, const UnitLayout& to);
// Bytes of the largest message that a gather or a reduction puts together from the unit or its gradient.
size_t staging_bytes(const Unit& unit);
size_t largest(const std::vector<Unit>& units, size_t (*bytes_of)(const Unit&));
Status allocate(MemorySpace& space, size_t bytes, FlatBuffer& buffer);
// For a shard of values or reduced gradients.
Status allocate_shard(MemorySpace& space, const Unit& unit, size_t bytes, FlatBuffer& buffer);

}  // namespace weft::internal::train
