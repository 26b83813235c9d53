#include "src/train/sharding/unit.hpp"

#include <algorithm>

namespace weft::internal::train {

uint64_t elements_of(const Unit& unit) {
    uint64_t count = 0;
    for (const TensorFacts& facts : unit.layout.parameters()) count += facts.count;
    return count;
}

size_t secondary_bytes(const Unit& unit) {
    constexpr size_t alignment = 16;
    const size_t ranks = size_t(unit.reshard_ranks);
    return ((unit.forms.whole.whole_bytes() + ranks - 1) / ranks + alignment - 1) / alignment * alignment;
}

size_t whole_capacity(const Unit& unit) {
    const size_t bytes = unit.forms.whole.whole_bytes();
    return unit.reshard_ranks <= 1 ? bytes : std::max(bytes, size_t(unit.reshard_ranks) * secondary_bytes(unit));
}

size_t message_bytes(const UnitLayout& layout) { return layout.shard_bytes() * size_t(layout.ranks()); }

bool converts(const UnitLayout& from, const UnitLayout& to) {
    // Only units of one type have several.
    return !from.segments().empty() && from.segments()[0].type != to.segments()[0].type;
}

size_t staging_bytes(const Unit& unit) {
    const UnitForms& forms = unit.forms;
    if (unit.layout.sharding() == Sharding::rows)
        return std::max(message_bytes(forms.whole), message_bytes(forms.reduced));
    return converts(forms.whole, forms.reduced) ? message_bytes(forms.reduced) : 0;
}

size_t largest(const std::vector<Unit>& units, size_t (*bytes_of)(const Unit&)) {
    size_t most = 0;
    for (const Unit& unit : units) most = std::max(most, bytes_of(unit));
    return most;
}

Status allocate(MemorySpace& space, size_t bytes, FlatBuffer& buffer) {
    auto made = FlatBuffer::allocate(space, bytes);
    if (!made) return made.take_status();
    buffer = std::move(*made);
    return ok();
}

Status allocate_shard(MemorySpace& space, const Unit& unit, size_t bytes, FlatBuffer& buffer) {
    auto made = unit.host_shards ? FlatBuffer::allocate_on_host(space, bytes) : FlatBuffer::allocate(space, bytes);
    if (!made) return made.take_status();
    buffer = std::move(*made);
    return ok();
}

}  // namespace weft::internal::train
