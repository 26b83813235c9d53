#include "src/train/sharding/unit_gathers.hpp"

#include <algorithm>

#include "src/base/datatype.hpp"
#include "src/train/sharding/unit_order.hpp"

namespace weft::internal::train {

namespace {

// One in use and one prefetched.
constexpr int whole_buffers = 2;

bool is_kept_alone(const Unit& unit) { return unit.reshard_ranks == 1; }
size_t pooled_capacity(const Unit& unit) { return is_kept_alone(unit) ? 0 : whole_capacity(unit); }

size_t converted_bytes(const Unit& unit) {
    return converts(unit.layout, unit.forms.whole) ? unit.forms.whole.shard_bytes() : 0;
}
size_t host_shard_bytes(const Unit& unit) { return unit.host_shards ? unit.layout.shard_bytes() : 0; }
size_t converted_host_bytes(const Unit& unit) {
    return converts(unit.layout, unit.forms.whole) ? host_shard_bytes(unit) : 0;
}

}  // namespace

UnitGathers::UnitGathers(MemorySpace& space, const ShardGroups& groups, std::vector<Unit>& units, bool keeps_wholes,
                         const Quantization& quantization)
    : space_(&space),
      groups_(&groups),
      units_(&units),
      keeps_wholes_(keeps_wholes),
      quantized_(space, quantization.gather_bits, quantization.block),
      wholes_(space, largest(units, pooled_capacity)) {}

Status UnitGathers::reserve(LaunchQueue& queue, std::byte* staging) {
    queue_ = &queue;
    staging_ = staging;
    WEFT_TRY(quantized_.reserve(*units_));
    if (!quantized_.used()) WEFT_TRY(allocate(*space_, largest(*units_, converted_bytes), converted_));
    WEFT_TRY(
        allocate(*space_, largest(*units_, quantized_.used() ? host_shard_bytes : converted_host_bytes), arrived_));
    const auto pooled =
        std::count_if(units_->begin(), units_->end(), [this](const Unit& unit) { return !has_own_whole(unit); });
    WEFT_TRY(wholes_.reserve(std::min(whole_buffers, int(pooled))));
    for (Unit& unit : *units_) {
        if (has_own_whole(unit)) {
            WEFT_TRY(allocate(*space_, whole_capacity(unit), unit.whole));
        } else if (unit.reshard_ranks > 1) {
            WEFT_TRY(allocate(*space_, secondary_bytes(unit), unit.secondary));
        }
    }
    return ok();
}

bool UnitGathers::has_own_whole(const Unit& unit) const { return keeps_wholes_ || is_kept_alone(unit); }

Status UnitGathers::gather(int number) {
    Unit& unit = (*units_)[size_t(number)];
    if (unit.state == UnitState::released) WEFT_TRY(start(unit));
    if (unit.state == UnitState::kept && checks_order())
        WEFT_TRY(queue_->wait(queue_->add([this, number] {
            return check_order(groups_->all(), {UnitCall::Kind::kept, number});
        })));
    if (unit.state == UnitState::gathering) WEFT_TRY(queue_->wait(unit.gathered_by));
    unit.state = UnitState::gathered;
    return ok();
}

Status UnitGathers::gathered(int number) {
    const std::optional<int> next = trace_.gathered(number);
    if (!next || (*units_)[size_t(*next)].state != UnitState::released) return ok();
    if (!has_own_whole((*units_)[size_t(*next)]) && !wholes_.has_free()) return ok();
    return start((*units_)[size_t(*next)]);
}

Status UnitGathers::start(Unit& unit) {
    if (!has_own_whole(unit)) {
        auto buffer = wholes_.take();
        if (!buffer) return buffer.take_status();
        unit.whole = std::move(*buffer);
    }
    elements_ += elements_of(unit);
    traffic_ += traffic_of(unit);
    unit.state = UnitState::gathering;
    unit.gathered_by = queue_->add([this, &unit, secondary = unit.has_secondary]() -> Status {
        const auto kind = secondary ? UnitCall::Kind::from_reshard_group : UnitCall::Kind::from_shards;
        WEFT_TRY(check_order(groups_->all(), {kind, int(&unit - units_->data())}));
        return gather_whole(unit, secondary);
    });
    return space_->mark(unit.gathered_at);
}

Status UnitGathers::gather_whole(const Unit& unit, bool from_secondary) {
    const UnitLayout& layout = unit.forms.whole;
    const size_t bytes = layout.shard_bytes();
    if (bytes == 0) return ok();
    if (from_secondary)
        return groups_->reshard(unit.reshard_ranks)
            .all_gather(unit.secondary.data(), unit.whole.data(), secondary_bytes(unit), space_->stream());
    if (layout.sharding() == Sharding::flat) return gather_shards(unit, unit.whole.data());
    std::byte* const staging = staging_;
    WEFT_TRY(gather_shards(unit, staging));
    for (int p = 0; p < int(layout.parameters().size()); ++p) {
        const size_t size = size_of(layout.parameters()[size_t(p)].type);
        for (int rank = 0; rank < layout.ranks(); ++rank) {
            const Piece piece = layout.piece(p, rank);
            WEFT_TRY(space_->copy(unit.whole.data() + layout.whole_offset(p) + piece.begin * size,
                                  staging + size_t(rank) * bytes + piece.shard_offset, piece.count * size));
        }
    }
    return ok();
}

Status UnitGathers::gather_shards(const Unit& unit, std::byte* gathered) {
    if (quantized_.used()) {
        const std::byte* const shard = unit.host_shards ? arrived_.data() : unit.shard.data();
        if (unit.host_shards) WEFT_TRY(space_->copy(arrived_.data(), unit.shard.data(), unit.layout.shard_bytes()));
        return quantized_.run(groups_->shard(), unit, shard, gathered);
    }
    const size_t bytes = unit.forms.whole.shard_bytes();
    auto shard = sent_shard(unit, gathered + size_t(groups_->shard().rank()) * bytes);
    if (!shard) return shard.take_status();
    return groups_->shard().all_gather(*shard, gathered, bytes, space_->stream());
}

Result<const std::byte*> UnitGathers::sent_shard(const Unit& unit, std::byte* place) {
    const UnitLayout& layout = unit.forms.whole;
    const bool converts = train::converts(unit.layout, layout);
    const std::byte* shard = unit.shard.data();
    if (unit.host_shards) {
        std::byte* const arrived = converts ? arrived_.data() : place;
        WEFT_TRY(space_->copy(arrived, shard, unit.layout.shard_bytes()));
        shard = arrived;
    }
    if (!converts) return shard;
    const weftDataType_t type = layout.segments()[0].type;
    WEFT_TRY(space_->convert(converted_.data(), type, shard, unit.layout.segments()[0].type,
                             layout.shard_bytes() / size_of(type)));
    return converted_.data();
}

Traffic UnitGathers::traffic_of(const Unit& unit) const {
    if (unit.has_secondary) return groups_->traffic(unit.reshard_ranks, secondary_bytes(unit));
    const UnitLayout& layout = unit.forms.whole;
    if (layout.shard_bytes() == 0) return {};
    return groups_->traffic(layout.ranks(),
                            quantized_.used() ? quantized_.message_bytes(layout) : layout.shard_bytes());
}

Status UnitGathers::release(int number, bool after_forward) {
    Unit& unit = (*units_)[size_t(number)];
    if (keeps_wholes_ || (after_forward && is_kept_alone(unit))) {
        unit.state = UnitState::kept;
        return ok();
    }
    unit.has_secondary = after_forward && unit.reshard_ranks > 1;
    if (unit.has_secondary) {
        const size_t part = size_t(groups_->reshard(unit.reshard_ranks).rank());
        WEFT_TRY(space_->copy(unit.secondary.data(), unit.whole.data() + part * secondary_bytes(unit),
                              secondary_bytes(unit)));
    }
    drop(unit);
    return ok();
}

void UnitGathers::drop(Unit& unit) {
    unit.state = UnitState::released;
    if (!has_own_whole(unit)) wholes_.give_back(std::move(unit.whole));
}

void UnitGathers::finish() {
    for (Unit& unit : *units_) {
        unit.has_secondary = false;
        if (unit.state != UnitState::released) drop(unit);
    }
    trace_.finish();
}

}  // namespace weft::internal::train
