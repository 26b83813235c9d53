#include "src/train/sharding/sharded.hpp"

#include <algorithm>

#include "src/base/datatype.hpp"
#include "src/train/agreement.hpp"

namespace weft::internal::train {

namespace {

size_t all_shards_bytes(const Unit& unit) { return message_bytes(unit.layout); }
size_t values_bytes(const Unit& unit) { return unit.layout.shard_bytes(); }

}  // namespace

Result<std::shared_ptr<Sharded>> Sharded::make(Status own, const ShardingPlan& plan, std::unique_ptr<MemorySpace> space,
                                               weftComm_t comm) {
    int ranks = 0;
    WEFT_TRY(called(weftCommCount(comm, &ranks)));
    if (own) own = check_groups(plan, ranks);
    if (own) own = check_types(plan);
    if (own) own = check_quantization(plan);
    const int shard_ranks = own ? shard_ranks_of(plan, ranks) : ranks;
    auto units = own ? units_of(plan, shard_ranks) : std::vector<Unit>();
    std::shared_ptr<Sharded> made(new Sharded(plan, std::move(space), std::move(units)));
    // Before the communicators' first calls, so that peers can map it.
    const int hop_ranks = own ? train::hop_ranks(plan, ranks) : 0;
    const bool has_replicas = shard_ranks < ranks;
    if (own) own = made->reserve(has_replicas, hop_ranks > 0 ? shard_ranks / hop_ranks : 1);
    auto all = Peers::make(comm);
    if (!all) return own ? all.take_status() : std::move(own);
    // All ranks have one plan, before they split the communicator by it.
    WEFT_TRY(check_agreement(**all, described(plan), std::move(own)));
    auto groups =
        ShardGroups::make(std::move(*all), comm, shard_ranks, reshard_sizes(made->units_), plan.hosts, hop_ranks);
    if (!groups) return groups.take_status();
    made->groups_ = std::move(*groups);
    WEFT_TRY(made->scatter_values(plan));
    made->open_ = false;
    return made;
}

Sharded::Sharded(const ShardingPlan& plan, std::unique_ptr<MemorySpace> space, std::vector<Unit> units)
    : space_(std::move(space)),
      units_(std::move(units)),
      gathers_(*space_, groups_, units_, plan.keeps_wholes, plan.quantization),
      gradients_(*space_, groups_, units_, plan) {
    for (int u = 0; u < unit_count(); ++u)
        for (int p = 0; p < int(units_[size_t(u)].layout.parameters().size()); ++p) unit_of_.emplace_back(u, p);
    if (plan.keeps_gradient_pages) space_->held().keep_pages();
}

Sharded::~Sharded() {
    if (open_) groups_.abort();
    queue_.reset();
    gradients_.end();
    groups_ = {};                 // before the memory of its calls
    (void)space_->synchronize();  // copies may still use the memory
}

Status Sharded::reserve(bool has_replicas, int hosts) {
    WEFT_TRY(space_->prepare_arithmetic());
    WEFT_TRY(allocate(*space_, largest(units_, staging_bytes), staging_));
    for (Unit& unit : units_) WEFT_TRY(allocate_shard(*space_, unit, unit.layout.shard_bytes(), unit.shard));
    Result<std::unique_ptr<LaunchQueue>> queue = space_->on_device() ? LaunchQueue::at_once() : LaunchQueue::start();
    if (!queue) return queue.take_status();
    queue_ = std::move(*queue);
    WEFT_TRY(gathers_.reserve(*queue_, staging_.data()));
    return gradients_.reserve(*queue_, staging_.data(), has_replicas, hosts);
}

Status Sharded::scatter_values(const ShardingPlan& plan) {
    const bool has_values = groups_.all().rank() == 0;
    const bool first_copy = !groups_.has_replicas() || groups_.replicas().rank() == 0;
    FlatBuffer message, arrived;  // arrived: a shard, before it is copied to host memory
    if (has_host_shards()) WEFT_TRY(allocate(*space_, largest(units_, values_bytes), arrived));
    if (has_values) WEFT_TRY(allocate(*space_, largest(units_, all_shards_bytes), message));
    for (size_t u = 0; u < units_.size(); ++u) {
        Unit& unit = units_[u];
        const size_t bytes = unit.layout.shard_bytes();
        if (bytes == 0) continue;
        // Padding is zeros, which change no scale of quantised messages.
        if (has_values) WEFT_TRY(space_->zero(message.data(), bytes * size_t(unit.layout.ranks())));
        for (int p = 0; has_values && p < int(plan.units[u].parameters.size()); ++p) {
            const UnitParameter& parameter = plan.units[u].parameters[size_t(p)];
            const size_t size = size_of(parameter.facts.type);
            for (int rank = 0; rank < unit.layout.ranks(); ++rank) {
                const Piece piece = unit.layout.piece(p, rank);
                if (piece.count == 0) continue;
                WEFT_TRY(space_->copy(message.data() + size_t(rank) * bytes + piece.shard_offset,
                                      static_cast<const std::byte*>(parameter.data) + piece.begin * size,
                                      piece.count * size));
            }
        }
        std::byte* const shard = unit.host_shards ? arrived.data() : unit.shard.data();
        if (first_copy) WEFT_TRY(groups_.shard().scatter(message.data(), shard, bytes, 0, space_->stream()));
        if (groups_.has_replicas())
            WEFT_TRY(groups_.replicas().broadcast(shard, bytes, weftUint8, 0, space_->stream()));
        if (unit.host_shards) WEFT_TRY(space_->copy(unit.shard.data(), shard, bytes));
    }
    return space_->synchronize();
}

void Sharded::end_by_exception() noexcept {
    try {
        (void)ended_by({error::internal_exception, "an exception has ended a call of this object"});
    } catch (...) {
        groups_.abort();
    }
}

Status Sharded::usable() const {
    if (!failure_) return failure_.copy();
    if (!groups_.all().aborted()) return ok();
    return fail(error::train_aborted, "this sharded model was aborted: destroy it and make a new one");
}

Status Sharded::ended_by(Status status) {
    if (status) return status;
    if (status.id() == error::abort_remote)
        status =
            fail(status, "another rank ended its training object in the middle of an iteration: {}", status.sentence());
    if (failure_) failure_ = status.copy();
    groups_.abort();  // also ranks of other groups wait for this one
    return status;
}

Status Sharded::gather(int number, weftStream_t stream) {
    WEFT_TRY(usable());
    if (units_[size_t(number)].state == UnitState::gathered)
        return fail(error::train_unit, "unit {}, \"{}\", is gathered already: release it before it is gathered again",
                    number, units_[size_t(number)].name);
    open_ = true;
    WEFT_TRY(ended_by(space_->follow(stream)));
    WEFT_TRY(ended_by(gathers_.gather(number)));
    // Not behind other work, such as the unit that is gathered ahead.
    Unit& unit = units_[size_t(number)];
    WEFT_TRY(ended_by(space_->lead(stream, unit.gathered_at.get())));
    unit.callers = stream;
    return ended_by(gathers_.gathered(number));
}

Status Sharded::release(int number, bool after_forward, weftStream_t stream) {
    WEFT_TRY(usable());
    if (units_[size_t(number)].state != UnitState::gathered)
        return fail(error::train_unit,
                    "unit {}, \"{}\", cannot be released, because it is not gathered: release it once after each "
                    "gather",
                    number, units_[size_t(number)].name);
    WEFT_TRY(ended_by(space_->follow(stream)));
    return ended_by(gathers_.release(number, after_forward));
}

Result<void*> Sharded::parameter(int number) const {
    const auto [unit_number, index] = unit_of_[size_t(number)];
    const Unit& unit = units_[size_t(unit_number)];
    if (unit.state != UnitState::gathered)
        return fail(error::train_unit, "parameter {} cannot be used, because unit {}, \"{}\", is released: gather it",
                    number, unit_number, unit.name);
    return static_cast<void*>(unit.whole.data() + unit.forms.whole.whole_offset(index));
}

Result<void*> Sharded::gradient(int number) {
    WEFT_TRY(usable());
    const auto [unit_number, index] = unit_of_[size_t(number)];
    const Unit& unit = units_[size_t(unit_number)];
    if (unit.state != UnitState::gathered)
        return fail(error::train_unit,
                    "the gradient of parameter {} cannot be used, because unit {}, \"{}\", is released: gather it",
                    number, unit_number, unit.name);
    auto whole = gradients_.whole(unit_number);
    if (!whole) return ended_by(whole.take_status());
    return static_cast<void*>(*whole + unit.forms.whole.whole_offset(index));
}

Status Sharded::reduce_scatter(int number, bool synchronizes, weftStream_t stream) {
    WEFT_TRY(usable());
    open_ = true;
    WEFT_TRY(ended_by(space_->follow(stream)));
    return ended_by(gradients_.reduce(number, synchronizes));
}

Status Sharded::finish(weftStream_t stream) {
    WEFT_TRY(usable());
    for (int u = 0; u < unit_count(); ++u) {
        const Unit& unit = units_[size_t(u)];
        if (unit.state == UnitState::gathered)
            return fail(error::train_unit, "unit {}, \"{}\", is still gathered: release it before the iteration ends",
                        u, unit.name);
        if (unit.gradient.computing)
            return fail(error::train_unit,
                        "unit {}, \"{}\", has a gradient that was not reduced: reduce it before the iteration ends", u,
                        unit.name);
    }
    WEFT_TRY(ended_by(gradients_.finish()));
    gathers_.finish();
    const bool has_old = gradients_.has_old();
    // The stream's last step may still read old gradients.
    if (has_old) WEFT_TRY(ended_by(space_->follow(stream)));
    // The host reads gradients and changes values next: copies from and to its memory have ended then.
    if (has_host_shards()) WEFT_TRY(ended_by(space_->synchronize()));
    if (has_old) WEFT_TRY(ended_by(gradients_.zero_old()));
    open_ = false;
    if (space_->on_device()) WEFT_TRY(ended_by(groups_.state()));
    return ended_by(space_->lead(stream));
}

Status Sharded::zero_gradients() {
    WEFT_TRY(usable());
    if (open_) return fail(error::train_iteration, "an iteration is open: finish it before the gradients are zeroed");
    gradients_.zero();
    return ok();
}

bool Sharded::reduced() const {
    return !open_ &&
           std::any_of(units_.begin(), units_.end(), [](const Unit& unit) { return unit.gradient.has_shard; }) &&
           std::none_of(units_.begin(), units_.end(), [](const Unit& unit) { return unit.gradient.has_partial; });
}

ParameterShard Sharded::shard(int number) const {
    const auto [unit_number, index] = unit_of_[size_t(number)];
    const Unit& unit = units_[size_t(unit_number)];
    const Piece piece = unit.layout.piece(index, groups_.shard().rank());
    ParameterShard shard{unit.shard.data() + piece.shard_offset, nullptr, piece.begin, piece.count};
    // In an iteration the launch queue writes it.
    if (unit.gradient.has_shard && !open_)
        shard.gradient =
            unit.gradient.shard.data() + unit.forms.gradient.piece(index, groups_.shard().rank()).shard_offset;
    return shard;
}

ShardingCounters Sharded::counters() const {
    ShardingCounters counters{
        gathers_.elements(),        gradients_.elements(), gathers_.traffic(), gradients_.traffic(), 0, 0, 0,
        space_->held().most_bytes()};
    for (const Unit& unit : units_) {
        const size_t shards = unit.shard.held() + unit.gradient.shard.held();
        counters.shard_bytes += shards + unit.gradient.partial.held() + unit.secondary.held();
        if (unit.host_shards) counters.host_bytes += shards;
    }
    counters.whole_bytes = space_->held().bytes() - counters.shard_bytes;
    if (!on_device()) counters.host_bytes = counters.shard_bytes;
    return counters;
}

}  // namespace weft::internal::train
