#include "src/train/ddp.hpp"

#include <algorithm>

#include "src/train/agreement.hpp"

namespace weft::internal::train {

namespace {

// Before any order of reports is known.
std::vector<std::vector<int>> first_assignment(const std::vector<TensorFacts>& parameters, const Settings& settings) {
    const bool one_for_each_type = !settings.find_unused || settings.static_graph;
    const std::vector<size_t> limits =
        one_for_each_type ? std::vector<size_t>{SIZE_MAX} : bucket_limits(settings.bucket_cap_bytes);
    auto assignment = assign_buckets(parameters, limits);
    std::reverse(assignment.begin(), assignment.end());
    return assignment;
}

// The parts of an object that a rank makes alone.
Status make_local(const Model& model, MemorySpace& space, GradientBuckets& buckets,
                  std::unique_ptr<LaunchQueue>& queue) {
    auto facts = facts_of(model.parameters);
    const auto assignment = first_assignment(facts, model.settings);
    std::vector<void*> own;
    for (const Tensor& parameter : model.parameters) own.push_back(parameter.gradient);
    // Before the communicator's first call, so that peers can map it.
    auto made = GradientBuckets::make(space, std::move(facts), assignment, std::move(own));
    if (!made) return made.take_status();
    buckets = std::move(*made);
    Result<std::unique_ptr<LaunchQueue>> started = space.on_device() ? LaunchQueue::at_once() : LaunchQueue::start();
    if (!started) return started.take_status();
    queue = std::move(*started);
    return ok();
}

}  // namespace

Result<std::shared_ptr<Ddp>> Ddp::make(Status own, Model model, std::unique_ptr<MemorySpace> space, weftComm_t comm) {
    if (!model.settings.hook) model.settings.hook = weftTrainHookAverage;
    GradientBuckets buckets;
    std::unique_ptr<LaunchQueue> queue;
    if (own) own = make_local(model, *space, buckets, queue);
    auto peers = Peers::make(comm);
    if (!peers) return own ? peers.take_status() : std::move(own);
    WEFT_TRY(check_agreement(**peers, described(model), std::move(own)));
    Status sent = broadcast_values(**peers, *space, model.parameters, 0);
    if (sent) sent = broadcast_values(**peers, *space, model.buffers, 0);
    if (!sent) (*peers)->abort();
    Status done = space->synchronize();  // no work uses the caller's memory after a failure
    WEFT_TRY(std::move(sent));
    WEFT_TRY(std::move(done));
    return std::shared_ptr<Ddp>(
        new Ddp(std::move(model), std::move(space), std::move(buckets), std::move(*peers), std::move(queue)));
}

Ddp::Ddp(Model model, std::unique_ptr<MemorySpace> space, GradientBuckets buckets, std::unique_ptr<Peers> peers,
         std::unique_ptr<LaunchQueue> queue)
    : model_(std::move(model)),
      space_(std::move(space)),
      buckets_(std::move(buckets)),
      peers_(std::move(peers)),
      hook_owner_{0, peers_.get(), &buckets_, space_.get(), queue.get()},
      reports_(model_.parameters.size(), model_.settings.static_graph),
      members_(peers_->ranks()),
      used_by_any_(model_.parameters.size(), 1),
      queue_(std::move(queue)) {}

Ddp::~Ddp() {
    if (open_ == weftTrainSynchronize) peers_->abort();
    queue_.reset();
    peers_.reset();
    (void)space_->synchronize();  // copies may still use the gradients
}

Status Ddp::usable() const {
    if (!failure_) return failure_.copy();
    if (!peers_->aborted()) return ok();
    WEFT_TRY(queue_->failure());  // a hook failed before finish() was called
    return fail(error::train_aborted, "weftTrainDdpAbort has ended this object: destroy it and make a new one");
}

Status Ddp::state() const {
    WEFT_TRY(usable());
    WEFT_TRY(queue_->failure());
    return peers_->state();
}

Status Ddp::settle() {
    if (!space_->on_device() || open_ == weftTrainSynchronize || !usable()) return ok();
    WEFT_TRY(space_->synchronize());
    return peers_->state();
}

Status Ddp::ended_by(Status status) {
    if (!status && status.id() == error::abort_remote)
        status =
            fail(status, "another rank ended its training object in the middle of an iteration: {}", status.sentence());
    if (status || !failure_) return status;
    const bool own_abort = peers_->aborted() && status.id() != error::train_hook && status.id() != error::train_aborted;
    if (own_abort)
        status = fail(error::train_aborted, "weftTrainDdpAbort has ended this object: {}", status.sentence());
    failure_ = status.copy();
    // All ranks see that their modes differ, and each broken communicator is broken on all ranks.
    if (status.id() != error::train_modes && !peers_->aborted() && peers_->state()) peers_->abort();
    return status;
}

void Ddp::end_by_exception() noexcept {
    try {
        (void)ended_by({error::internal_exception, "an exception has ended a call of this object"});
    } catch (...) {
        peers_->abort();
    }
}

void* Ddp::gradient(int parameter) const {
    void* const own = buckets_.own(parameter);
    return own ? own : buckets_.gradient(parameter);
}

Status Ddp::zero_gradients(weftStream_t stream) {
    WEFT_TRY(usable());
    if (open_ == weftTrainSynchronize)
        return fail(error::train_iteration,
                    "an iteration that synchronises is open: call weftTrainDdpZeroGradients before weftTrainDdpBegin");
    reduced_ = false;
    WEFT_TRY(ended_by(space_->follow(stream)));
    WEFT_TRY(ended_by(buckets_.zero_all()));
    return ended_by(space_->lead(stream));
}

Status Ddp::begin(weftTrainMode_t mode, weftStream_t stream) {
    WEFT_TRY(usable());
    if (open_)
        return fail(error::train_iteration,
                    "an iteration is open: call weftTrainDdpFinish before the next weftTrainDdpBegin");
    if (space_->on_device()) WEFT_TRY(ended_by(space_->follow(stream)));
    WEFT_TRY(ended_by(begin_with_all(true, mode)));
    open_ = mode;
    reduced_ = false;
    reports_.begin();
    if (mode == weftTrainAccumulate) return ok();
    // A failure on a device shows after the call.
    if (space_->on_device()) WEFT_TRY(ended_by(peers_->state()));
    // With a static graph other ranks may use a parameter that this one does not.
    for (int i = 0; model_.settings.static_graph && i < parameter_count(); ++i)
        if (reports_.expected(i) == 0) WEFT_TRY(ended_by(take(i, true)));
    launch_full();
    return ended_by(space_->lead(stream));
}

Status Ddp::begin_with_all(bool active, weftTrainMode_t mode) {
    if (model_.settings.join) {
        WEFT_TRY(members_.exchange(*peers_, active, mode, reports_.recording()));
        if (members_.active() == 0) return ok();
        mode = members_.mode();
    }
    return mode == weftTrainSynchronize ? begin_synchronizing() : ok();
}

Status Ddp::begin_synchronizing() {
    if (first_.source >= 0) WEFT_TRY(rebuild());
    if (model_.settings.broadcast_buffers)
        WEFT_TRY(broadcast_values(*peers_, *space_, model_.buffers, members_.lowest_active()));
    full_.begin(buckets_.layout());
    return ok();
}

Status Ddp::rebuild() {
    std::vector<int> order = first_.order;
    order.resize(model_.parameters.size());
    WEFT_TRY(peers_->broadcast(order.data(), order.size(), weftInt32, first_.source));
    if (!is_permutation_of_indices(order))
        return fail(error::internal_exception, "rank {} sent an order of gradients that is none", first_.source);
    first_.source = -1;
    const std::vector<size_t> limits = bucket_limits(model_.settings.bucket_cap_bytes);
    return buckets_.rebuild(assign_buckets(buckets_.parameters(), limits, order));
}

Status Ddp::ready(std::span<const int> parameters, weftStream_t stream) {
    WEFT_TRY(usable());
    if (!open_ && !parameters.empty())
        return fail(error::train_iteration,
                    "the gradient of parameter {}, \"{}\", was reported, but no iteration is open: call "
                    "weftTrainDdpBegin first",
                    parameters[0], model_.parameters[size_t(parameters[0])].name);
    if (open_ == weftTrainSynchronize && space_->on_device()) {
        WEFT_TRY(ended_by(peers_->state()));  // work that was enqueued fails later
        WEFT_TRY(ended_by(space_->follow(stream)));
    }
    for (const int parameter : parameters) {
        WEFT_TRY(reports_.report(parameter, model_.parameters[size_t(parameter)].name));
        if (open_ == weftTrainAccumulate || !reports_.complete(parameter)) continue;
        if (void* const own = buckets_.own(parameter)) WEFT_TRY(ended_by(buckets_.copy_in(parameter, own)));
        if (full_.ready(parameter)) launch_full();
    }
    return ok();
}

Status Ddp::take(int parameter, bool zeros) {
    const void* const own = buckets_.own(parameter);
    if (zeros)
        WEFT_TRY(buckets_.zero(parameter));
    else if (own)
        WEFT_TRY(buckets_.copy_in(parameter, own));
    (void)full_.ready(parameter);
    return ok();
}

Status Ddp::check_missing() const {
    if (model_.settings.find_unused || reports_.recording() || !reports_.any_missing()) return ok();
    const std::vector<int> missing = reports_.missing();
    const std::string others = missing.size() == 1 ? "" : fmt::format(" and of {} others", missing.size() - 1);
    return fail(error::train_missing_gradient,
                "the gradient of parameter {}, \"{}\",{} was not reported: call weftTrainDdpGradientReady for it and "
                "then weftTrainDdpFinish again, or set config.findUnused",
                missing.front(), model_.parameters[size_t(missing.front())].name, others)
        .about({.rank = peers_->rank()});
}

void Ddp::launch_full() {
    for (int bucket = full_.take(); bucket >= 0; bucket = full_.take()) {
        // Nothing is left to overlap with the last bucket: finish() carries it out, which saves a change of threads.
        const auto launched = [this, bucket] { return launch(bucket); };
        full_.all_taken() ? queue_->add_before_wait(launched) : queue_->add(launched);
    }
}

Status Ddp::launch(int bucket) {
    const int divisor = model_.settings.divides_by_active ? members_.active() : peers_->ranks();
    return run_hook(model_.settings, hook_owner_, space_->stream(), bucket, divisor);
}

Status Ddp::finish(weftStream_t stream) {
    WEFT_TRY(usable());
    if (!open_)
        return fail(error::train_iteration, "no iteration is open: call weftTrainDdpBegin before weftTrainDdpFinish");
    if (open_ == weftTrainSynchronize) {
        WEFT_TRY(check_missing());
        if (space_->on_device()) {
            WEFT_TRY(ended_by(peers_->state()));
            WEFT_TRY(ended_by(space_->follow(stream)));
        }
        WEFT_TRY(complete(true));
        WEFT_TRY(ended_by(space_->lead(stream)));
    }
    reduced_ = open_ == weftTrainSynchronize;
    open_.reset();
    return ok();
}

Status Ddp::complete(bool active) {
    for (int i = 0; !full_.all_ready() && i < parameter_count(); ++i)
        if (!full_.is_ready(i)) WEFT_TRY(ended_by(take(i, !active || !reports_.used(i))));
    for (int bucket = full_.take(); bucket >= 0; bucket = full_.take())
        queue_->add_before_wait([this, bucket] { return launch(bucket); });
    if (exchanges_used()) {
        // With a static graph a rank may record its first iteration after others.
        const bool keeps = model_.settings.static_graph && first_.ended;
        for (int i = 0; i < parameter_count(); ++i) {
            int32_t& used = used_by_any_[size_t(i)];
            used = (keeps && used != 0) || (active && reports_.used(i));
        }
        queue_->add_before_wait(
            [this] { return peers_->all_reduce(used_by_any_.data(), used_by_any_.size(), weftInt32, weftSum); });
    }
    WEFT_TRY(ended_by(queue_->wait()));
    if (active) {
        for (int i = 0; buckets_.has_own() && i < parameter_count(); ++i)
            if (void* const own = buckets_.own(i); own && used(i)) WEFT_TRY(ended_by(buckets_.copy_out(i, own)));
        if (!first_.ended) first_.order = reports_.order();
        if (reports_.recording()) reports_.end_recording();
        reports_.clear_used();
    }
    const bool rebuilds = model_.settings.static_graph || !model_.settings.find_unused;
    if (!first_.ended && rebuilds) first_.source = members_.lowest_active();
    first_.ended = true;
    return ok();
}

Status Ddp::join(weftStream_t stream) {
    WEFT_TRY(usable());
    if (open_)
        return fail(error::train_iteration, "an iteration is open: call weftTrainDdpFinish before weftTrainDdpJoin");
    if (!model_.settings.join)
        return fail(error::train_iteration, "weftTrainDdpJoin needs config.join 1 at weftTrainDdpCreate, on all ranks");
    reports_.clear_used();
    WEFT_TRY(ended_by(space_->follow(stream)));
    for (;;) {
        WEFT_TRY(ended_by(begin_with_all(false, weftTrainSynchronize)));
        if (members_.active() == 0) break;
        if (members_.mode() == weftTrainAccumulate) continue;
        WEFT_TRY(complete(false));
    }
    WEFT_TRY(ended_by(broadcast_values(*peers_, *space_, model_.parameters, members_.highest_last_active())));
    WEFT_TRY(ended_by(broadcast_values(*peers_, *space_, model_.buffers, members_.highest_last_active())));
    WEFT_TRY(ended_by(space_->lead(stream)));
    WEFT_TRY(ended_by(space_->synchronize()));
    return space_->on_device() ? ended_by(peers_->state()) : ok();
}

}  // namespace weft::internal::train
