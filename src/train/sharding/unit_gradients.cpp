#include "src/train/sharding/unit_gradients.hpp"

#include <algorithm>
#include <cstring>

#include "src/train/sharding/unit_order.hpp"

namespace weft::internal::train {

namespace {

// One that is computed and one that is reduced. A staged gradient is reduced from the staging memory.
constexpr int gradient_buffers = 2;
int usual_buffers(const std::vector<Unit>& units) {
    const bool all_staged = std::all_of(units.begin(), units.end(), [](const Unit& unit) {
        return staging_bytes(unit) > 0 || unit.forms.whole.whole_bytes() == 0;
    });
    return std::min(all_staged ? 1 : gradient_buffers, int(units.size()));
}

size_t whole_bytes(const Unit& unit) { return unit.forms.whole.whole_bytes(); }
size_t shard_bytes(const Unit& unit) { return unit.forms.gradient.shard_bytes(); }
size_t reduced_bytes(const Unit& unit) { return unit.forms.reduced.shard_bytes(); }

}  // namespace

UnitGradients::UnitGradients(MemorySpace& space, const ShardGroups& groups, std::vector<Unit>& units,
                             const ShardingPlan& plan)
    : space_(&space),
      groups_(&groups),
      units_(&units),
      rules_{plan.keeps_gradients, plan.overwrites_gradients, plan.pools_gradients},
      wholes_(space, largest(units, whole_bytes), plan.pools_gradients),
      reduction_(space, groups, plan.divisor, plan.quantization) {}

Status UnitGradients::reserve(LaunchQueue& queue, std::byte* staging, bool has_replicas, int hosts) {
    queue_ = &queue;
    staging_ = staging;
    WEFT_TRY(reduction_.reserve(*units_, hosts));
    reduction_.discard();
    buffers_ = rules_.keeps_wholes ? 0 : usual_buffers(*units_);
    WEFT_TRY(wholes_.reserve(buffers_, true));
    for (Unit& unit : *units_) {
        WEFT_TRY(allocate_shard(*space_, unit, shard_bytes(unit), unit.gradient.shard));
        unit.gradient.shard.discard();
        if (has_replicas) WEFT_TRY(allocate(*space_, reduced_bytes(unit), unit.gradient.partial));
        unit.gradient.partial.discard();
        if (!rules_.keeps_wholes) continue;
        WEFT_TRY(allocate_own(unit));
        unit.gradient.whole.discard();
    }
    if (!has_replicas) return ok();
    if (space_->on_device()) {
        replica_queue_ = LaunchQueue::at_once();
        return ok();
    }
    auto started = LaunchQueue::start();
    if (!started) return started.take_status();
    replica_queue_ = std::move(*started);
    return ok();
}

Status UnitGradients::take(Unit& unit) {
    reclaim();
    if (!wholes_.has_free() && !reducing_.empty()) {
        WEFT_TRY(queue_->wait(reducing_.front().ticket));
        reclaim();
    }
    // The caller computes two gradients at once.
    const bool one_more = !wholes_.has_free() && buffers_ < gradient_buffers;
    if (wholes_.has_free() || one_more) {
        if (one_more) ++buffers_;
        auto memory = wholes_.take();
        if (!memory) return memory.take_status();
        unit.gradient.whole = std::move(*memory);
        return one_more ? mark_pooled(unit) : ok();
    }
    WEFT_TRY(allocate_own(unit));
    return mark_pooled(unit);
}

Status UnitGradients::mark_pooled(const Unit& unit) {
    return rules_.pools ? space_->mark(read_at_[unit.gradient.whole.data()]) : ok();
}

Status UnitGradients::allocate_own(Unit& unit) {
    unit.gradient.has_own_whole = true;
    auto made = rules_.pools ? FlatBuffer::allocate_pooled(*space_, whole_bytes(unit))
                             : FlatBuffer::allocate(*space_, whole_bytes(unit));
    if (!made) return made.take_status();
    unit.gradient.whole = std::move(*made);
    return ok();
}

void UnitGradients::reclaim() {
    while (!reducing_.empty() && queue_->done(reducing_.front().ticket)) {
        wholes_.give_back(std::move(reducing_.front().gradient));
        reducing_.erase(reducing_.begin());
    }
}

Result<std::byte*> UnitGradients::whole(int number) { return begun(number, true); }

Result<std::byte*> UnitGradients::begun(int number, bool by_caller) {
    Unit& unit = (*units_)[size_t(number)];
    if (!unit.gradient.computing) {
        if (unit.gradient.has_own_whole)
            WEFT_TRY(queue_->wait(unit.gradient.read_by));
        else
            WEFT_TRY(take(unit));
        const bool is_new = unit.gradient.whole.discarded();
        WEFT_TRY(unit.gradient.whole.back());
        if (is_new) WEFT_TRY(mark_pooled(unit));
        const bool has_zeros = is_new && !space_->on_device();  // in new pages
        if (!has_zeros) WEFT_TRY(fill(unit, by_caller));
        unit.gradient.computing = true;
    }
    return unit.gradient.whole.data();
}

Status UnitGradients::fill(const Unit& unit, bool by_caller) {
    std::byte* const whole = unit.gradient.whole.data();
    const size_t bytes = whole_bytes(unit);
    if (!by_caller) return space_->zero(whole, bytes);
    WEFT_TRY(space_->lead(unit.callers, read_at_[whole].get()));
    const size_t zeros = rules_.overwrites ? unit.forms.whole.padding_bytes() : bytes;
    return space_->zero_for(unit.callers, whole + bytes - zeros, zeros);
}

Status UnitGradients::reduce(int number, bool synchronizes) {
    Unit& unit = (*units_)[size_t(number)];
    UnitGradient& gradient = unit.gradient;
    // Other ranks may have computed one, so this rank takes part, with zeros.
    auto memory = begun(number, false);
    if (!memory) return memory.take_status();
    gradient.computing = false;
    WEFT_TRY(gradient.shard.back());
    WEFT_TRY(gradient.partial.back());
    const bool completes = synchronizes || !groups_->has_replicas();
    const ReductionPlan plan{completes, gradient.has_shard, gradient.has_partial};
    gradient.has_shard = gradient.has_shard || completes;
    gradient.has_partial = !completes;
    WEFT_TRY(launch(unit, plan, synchronizes));
    if (!gradient.has_own_whole) reducing_.push_back({gradient.read_by, std::move(gradient.whole)});
    return ok();
}

Status UnitGradients::launch(Unit& unit, const ReductionPlan& plan, bool synchronizes) {
    elements_ += elements_of(unit);
    traffic_ += reduction_.traffic(unit);
    std::byte* const whole = unit.gradient.whole.data();
    const bool staged = staging_bytes(unit) > 0 && shard_bytes(unit) > 0;
    if (staged) {
        unit.gradient.read_by = queue_->add([this, &unit, whole] { return reduction_.stage(unit, whole, staging_); });
        WEFT_TRY(space_->mark(read_at_[whole]));
    }
    const auto reduced_by = queue_->add([this, &unit, plan, synchronizes, whole]() -> Status {
        const auto kind = synchronizes ? UnitCall::Kind::reduce : UnitCall::Kind::reduce_and_accumulate;
        WEFT_TRY(check_order(groups_->all(), {kind, int(&unit - units_->data())}));
        if (shard_bytes(unit) == 0) return ok();
        // An earlier reduction of this unit may still use its memory.
        if (replica_queue_ && plan.adds_gradient) WEFT_TRY(replica_queue_->wait(unit.gradient.replicated_by));
        WEFT_TRY(reduction_.over_shards(unit, plan, whole, staging_));
        if (replica_queue_ && plan.synchronizes)
            unit.gradient.replicated_by =
                replica_queue_->add([this, &unit, plan] { return reduction_.over_replicas(unit, plan); });
        return ok();
    });
    if (staged) return ok();
    unit.gradient.read_by = reduced_by;
    return space_->mark(read_at_[whole]);
}

Status UnitGradients::finish() {
    WEFT_TRY(queue_->wait());
    if (replica_queue_) WEFT_TRY(replica_queue_->wait());
    reclaim();
    discard();
    return ok();
}

void UnitGradients::discard() {
    wholes_.discard();
    reduction_.discard();
    for (Unit& unit : *units_) {
        unit.gradient.whole.discard();
        if (!unit.gradient.has_partial) unit.gradient.partial.discard();
    }
}

void UnitGradients::zero() {
    for (Unit& unit : *units_) {
        UnitGradient& gradient = unit.gradient;
        gradient.has_old |= gradient.has_shard && gradient.shard.bytes() > 0;
        gradient.has_shard = gradient.has_partial = false;
        gradient.shard.discard();
        gradient.has_old = gradient.has_old && !gradient.shard.discarded();
    }
    discard();
}

bool UnitGradients::has_old() const {
    return std::any_of(units_->begin(), units_->end(),
                       [](const Unit& unit) { return unit.gradient.has_old && !unit.gradient.has_shard; });
}

Status UnitGradients::zero_old() {
    for (Unit& unit : *units_) {
        UnitGradient& gradient = unit.gradient;
        if (!std::exchange(gradient.has_old, false) || gradient.has_shard) continue;
        if (unit.host_shards)
            memset(gradient.shard.data(), 0, gradient.shard.bytes());
        else
            WEFT_TRY(space_->zero(gradient.shard.data(), gradient.shard.bytes()));
    }
    return ok();
}

}  // namespace weft::internal::train
