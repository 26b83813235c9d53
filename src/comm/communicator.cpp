#include "src/comm/communicator.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "src/base/cancellation.hpp"
#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/segment/arena.hpp"
#include "src/segment/first_cause.hpp"

namespace weft::internal {

static constexpr int64_t leave_patience_us = 2'000'000;

Result<std::unique_ptr<Communicator>> Communicator::make(std::shared_ptr<Segment> group,
                                                         std::shared_ptr<Membership> membership,
                                                         std::unique_ptr<GpuEngine> device, int rank,
                                                         CommunicatorOptions options) {
    auto flag_block = FlagBlock::open(*group, rank, options.slots_later);
    if (!flag_block) {
        group->raise(flag_block.status(), rank);
        return flag_block.take_status();
    }
    if (device) {
        if (Status begun = device->begin(options.timeout_ms); !begun) {
            group->raise(begun, rank);
            return begun;
        }
    }
    return std::unique_ptr<Communicator>(new Communicator(std::move(group), std::move(membership), std::move(device),
                                                          rank, options, std::move(*flag_block)));
}

Communicator::Communicator(std::shared_ptr<Segment> group, std::shared_ptr<Membership> membership,
                           std::unique_ptr<GpuEngine> device, int rank, const CommunicatorOptions& options,
                           std::unique_ptr<FlagBlock> flag_block)
    : segment_(std::move(group)),
      membership_(std::move(membership)),
      rank_(rank),
      returned_errors_(std::make_unique<ReturnedErrorScope>(segment_, membership_, rank)),
      device_(std::move(device)),
      flag_block_(std::move(flag_block)),
      planner_(*segment_, membership_ ? &membership_->identity() : nullptr, rank, flag_block_.get(),
               *options.cpu_kernels, options.streaming_bytes, options.catalog, options.machines, options.tuning),
      waiting_(*segment_, rank, options.sleep_us),
      watchdog_(*segment_, rank, options.name, {options.warn_ms * 1000, options.timeout_ms * 1000}),
      options_(options) {
    add_descriptors_ = [this](std::vector<pollfd>& list) {
        if (in_call_ && uneven_) parts_->exchange().add_descriptors(list);
        if (in_call_ && prepared_) prepared_->run->add_descriptors(list);
        if (has_messages()) messages_->exchange().add_descriptors(list);
        if (one_sided_) one_sided_->add_descriptors(list);
    };
    waiting_.seen_here();
    WEFT_LOG_RANK(rank_, info, init, "rank {} of {} joined{}{}, process {}", rank, segment_->ranks(),
                  options_.name.empty() ? "" : " communicator ", options_.name, getpid());
}

Communicator::~Communicator() {
    returned_errors_.reset();
    // From here on no rank waits for us, and the segment keeps the data that peers still read.
    segment_->row(rank_).state.store(RankState::left, std::memory_order_release);
    segment_->wake();
    segment_->ring();
    await_untouched();
    RootRendezvous::close_finished();
    // Returns when our kernels have ended. Peers that call again meanwhile learn that we have left.
    device_.reset();
    // A rank that enqueued calls and left got no error from them.
    if (!dead_ && !aborted_here() && segment_->aborted())
        WEFT_LOG_RANK(rank_, warn, coll, "leaves a communicator that has failed, with what it had enqueued: {}",
                      segment_->abort_status().text());
    WEFT_LOG_RANK(rank_, info, init, "rank {} of {} left after {} operations", rank_, segment_->ranks(), sequence_);
}

Status Communicator::die(Status failure) {
    const CancelHeld held;
    dead_ = true;
    // The rank that saw the cause may be about to report it.
    if (failure.code() == weftRemoteError && !segment_->one_host())
        if (Status known = watchdog_.await_cause([this] { return cause(); }); !known) failure = std::move(known);
    failure = first_cause(*segment_, std::move(failure));
    // All ranks report the first error, word for word.
    if (!segment_->raise(failure, rank_)) failure = segment_->abort_status();
    leave_buffers();
    if (one_sided_) one_sided_->abandon();
    if (aborted_here_.load(std::memory_order_acquire))
        return fail(error::abort_local, "the communicator was aborted here, by weftCommAbort");
    WEFT_LOG_RANK(rank_, warn, coll, "{}", failure.text());
    return failure;
}

// From here on this rank accesses no peer's buffers.
void Communicator::leave_buffers() {
    // Pairs with the ones in ExportedBuffers::decide() and Cma::remote_memory_valid().
    std::atomic_thread_fence(std::memory_order_seq_cst);
    segment_->row(rank_).gave_up.store(std::max<uint64_t>(1, sequence_), std::memory_order_release);
}

// Peers may still access this call's buffers in place, and the user may free them when we return.
// The abort flag is set, so every running peer leaves soon. The wait for a stopped peer is bounded.
void Communicator::await_borrowers() {
    if (!dead_) return;
    const CancelHeld held;
    const int64_t until = now_us() + leave_patience_us;
    for (int peer = 0; peer < segment_->ranks(); ++peer)
        while (peer != rank_ && may_be_using(peer) &&
               segment_->row(peer).state.load(std::memory_order_acquire) != RankState::left && segment_->alive(peer)) {
            if (now_us() > until) {
                WEFT_LOG_RANK(
                    rank_, warn, coll,
                    "returns although rank {} (pid {}) does not move and may still use the buffers of operation {}",
                    peer, segment_->row(peer).pid, sequence_);
                return;
            }
            sched_yield();
        }
    await_untouched();
}

bool Communicator::may_be_using(int peer) const {
    const uint64_t gave_up = segment_->row(peer).gave_up.load(std::memory_order_acquire);
    if (gave_up == 0 && ((messages_ && messages_->exchange().may_be_read_by(peer)) ||
                         (parts_ && parts_->exchange().may_be_read_by(peer))))
        return true;
    if (gave_up == 0 && in_call_ && prepared_ && prepared_->run->may_be_reading(peer)) {
        // A peer that enters the call later sees the abort flag before it reads.
        const auto position = segment_->row(peer).position.read();
        return !position || position->entered >= sequence_;
    }
    return in_call_ && prepared_ && prepared_->run->may_be_using(peer) && gave_up < sequence_;
}

Status Communicator::usable() {
    if (device_) device_->look(true);
    if (dead_ || segment_->aborted()) [[unlikely]] {
        if (!std::exchange(dead_, true) && !in_call_) {
            leave_buffers();
            if (one_sided_) one_sided_->abandon();
        }
        const Status cause = segment_->abort_status();
        if (cause) return fail(error::abort_local, "the communicator is dead: destroy it and make a new one");
        return fail(cause, "the communicator is dead, destroy it and make a new one; it died of: {}", cause.sentence());
    }
    if (finalized_)
        return fail(error::usage_finalized,
                    "the communicator was finalized (weftCommFinalize) and makes no more calls: end it with "
                    "weftCommDestroy");
    return ok();
}

Status Communicator::begin_telling(uint8_t op, void* all, size_t bytes) {
    Call call{};
    call.operation.collective = Collective::all_gather;
    call.operation.op = op;
    call.operation.type = weftUint64;
    call.operation.count = bytes / sizeof(uint64_t);
    call.send = static_cast<std::byte*>(all) + size_t(rank_) * bytes;
    call.receive = all;
    return begin(call);
}

Status Communicator::begin_split(void* all, size_t bytes, int64_t timeout_ms) {
    Status begun = begin_telling(Operation::op_of_split, all, bytes);
    call_limit_ = {timeout_ms, "WEFT_INIT_TIMEOUT_MS"};
    return begun;
}

Status Communicator::end_split() { return end(); }

void Communicator::watch(const Limit& limit) {
    const int64_t timeout_ms = limit.timeout_ms < 0 ? options_.timeout_ms : limit.timeout_ms;
    watchdog_.limit({options_.warn_ms * 1000, timeout_ms * 1000},
                    limit.timeout_ms < 0 ? "WEFT_TIMEOUT_MS" : limit.set_by);
}

int64_t Communicator::earlier(int64_t one, int64_t other) const {
    const auto length = [&](int64_t timeout_ms) {
        const int64_t own = timeout_ms < 0 ? options_.timeout_ms : timeout_ms;
        return own == 0 ? INT64_MAX : own;
    };
    return length(other) < length(one) ? other : one;
}

uint64_t Communicator::next_shrink(const std::vector<int>& excluded) const {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const int rank : excluded) hash = (hash ^ uint64_t(unsigned(rank))) * 0x100000001b3u;
    return uint64_t(1) << 63 | (hash >> 33) << 32 |
           uint32_t(shrinks_.count(excluded) ? shrinks_.at(excluded) : 0) << 1 | 1;
}

void Communicator::stop(const std::string& why) {
    dead_ = true;
    segment_->raise(error::abort_remote, rank_, why, {.rank = rank_});
    if (!in_call_) leave_buffers();
}

void Communicator::flush() const {
    if (!device_) return;
    device_->finish();
    device_->look(true);
}

Status Communicator::finalize() {
    WEFT_TRY(usable());
    flush();
    WEFT_TRY(usable());
    finalized_ = true;
    return ok();
}

Status Communicator::set_call_settings(int64_t timeout_ms, const char* algo, int channels, int priority) {
    CallSettings settings{timeout_ms < 0 ? -1 : std::min(timeout_ms, INT64_MAX / 1000), 0, priority};
    if (algo || channels >= 0) {
        const bool fresh = !planner_.knows(algo_or_agreed(algo), channels_or_agreed(channels));
        auto preference = planner_.preference(algo_or_agreed(algo), channels_or_agreed(channels));
        if (!preference) return preference.take_status();
        settings.preference = *preference;
        if (fresh && device_)
            device_->collectives().prefer(settings.preference, algo_or_agreed(algo), channels_or_agreed(channels));
    }
    call_settings_ = settings;
    return ok();
}

Status Communicator::begin(const Call& call) {
    WEFT_TRY(usable());
    if (call.copied) [[unlikely]]
        return begin_copied(call);
    call_ = call;
    call_limit_.timeout_ms = call.settings.timeout_ms;
    call_limit_.set_by = Limit::of_call;
    if (call.operation.space == Space::device) [[unlikely]]
        return begin_on_device();
    if (call.operation.collective > Collective::barrier) [[unlikely]]
        return one_sided(call.operation.collective) ? begin_access() : begin_uneven();
    in_call_ = true;
    ++sequence_;
    waiting_.seen_here();
    prepared_ = plans_.find(PlanKey(call.operation, call.settings.preference));
    if (!prepared_) [[unlikely]]
        return prepare();
    segment_->row(rank_).position.enter(sequence_, prepared_->plan.operation);
    prepared_->run->start(call.send, call.receive, call.operand, sequence_);
    watchdog_.begin();
    return ok();
}

namespace {

DeviceCall on_device(const Communicator::Call& call) {
    return {call.operation, call.send,   call.receive,           call.operand,
            call.stream,    call.mapped, call.operand_on_device, call.settings};
}

}  // namespace

Status Communicator::begin_on_device() {
    if (uneven(call_.operation.collective)) return begin_uneven_on_device();
    if (one_sided(call_.operation.collective)) return begin_access_on_device();
    const DeviceCall call = weft::internal::on_device(call_);
    if (Status prepared = device_->collectives().prepare(call); !prepared) return refuse_or_die(std::move(prepared));
    // Before the launch: a kernel may fail at once, and its report names the call in our row.
    segment_->row(rank_).position.enter(++sequence_, device_->collectives().prepared());
    prepared_ = nullptr;
    on_device_ = true;
    if (Status launched = device_->collectives().launch(call); !launched) return die(std::move(launched));
    return ok();
}

std::span<std::byte> Communicator::coalescing_buffer(size_t bytes) {
    if (coalesced_.bytes() < bytes && coalesced_heap_.size() < bytes) {
        auto memory = ArenaMemory::allocate(std::max(bytes, 2 * coalesced_.bytes()));
        if (memory)
            coalesced_ = std::move(*memory);
        else
            coalesced_heap_.resize(bytes);
    }
    return {coalesced_.bytes() < bytes ? coalesced_heap_.data() : coalesced_.data(), bytes};
}

Status Communicator::begin_coalesced_on_device(std::span<const Call> calls) {
    WEFT_TRY(usable());
    call_ = calls.back();
    std::vector<DeviceCall> on_device;
    for (const Call& call : calls) on_device.push_back(weft::internal::on_device(call));
    GpuCollectives& gpu = device_->collectives();
    if (Status prepared = gpu.prepare_coalesced(on_device); !prepared) return refuse_or_die(std::move(prepared));
    for (size_t i = 0; i < calls.size(); ++i)
        segment_->row(rank_).position.enter(++sequence_, gpu.prepared_coalesced(i));
    prepared_ = nullptr;
    on_device_ = true;
    if (Status launched = gpu.launch_coalesced(on_device); !launched) return die(std::move(launched));
    return ok();
}

// If CUDA fails before a launch, the error of the context is permanent. This rank will not call again, so the others
// must not wait.
Status Communicator::refuse_or_die(Status failure) {
    return failure.code() == weftUnhandledCudaError ? die(std::move(failure)) : std::move(failure);
}

void* Communicator::register_buffer(void* address, size_t bytes) {
    const auto entry = device_ ? device_->buffers().add(address, bytes) : std::nullopt;
    if (!entry && Arena::place_of(address, bytes) == 0)
        WEFT_LOG_RANK(rank_, info, mem, "{} bytes at {} are private memory that peers cannot map; use weftHostAlloc",
                      bytes, address);
    return &*registered_.insert(registered_.end(), entry.value_or(GpuBuffers::no_entry));
}

Status Communicator::deregister_buffer(const void* handle) {
    const auto place =
        std::find_if(registered_.begin(), registered_.end(), [&](const int& entry) { return &entry == handle; });
    if (place == registered_.end())
        return fail(error::argument_handle,
                    "weftCommDeregister: {} is no handle of weftCommRegister on this communicator", handle);
    if (*place != GpuBuffers::no_entry) WEFT_TRY(device_->buffers().remove(*place));
    registered_.erase(place);
    return ok();
}

// For a new key: choose, build, bind. advance() calls this again until the peers of new connections listen.
Status Communicator::prepare() {
    const CancelHeld held;
    if (!binding_) {
        auto choice = planner_.choose(call_.operation, call_.settings.preference);
        auto bound = choice ? planner_.bind(call_.operation, *choice) : Result<Binding*>(choice.take_status());
        if (!bound) {
            in_call_ = false;
            --sequence_;  // no rank posted anything, and all ranks refuse alike, because the reasons are agreed
            return bound.take_status();
        }
        choice_ = *choice;
        Operation chosen = call_.operation;
        chosen.choice = choice_.hash();
        segment_->row(rank_).position.enter(sequence_, chosen);
        watchdog_.begin();
        binding_ = *bound;
    }
    auto connected = planner_.connect(*binding_, missing_binding_);
    if (!connected) return die(connected.take_status());
    if (!*connected) return ok();
    auto plan = planner_.plan(call_.operation, choice_, *binding_);
    binding_ = nullptr;
    if (!plan) return die(plan.take_status());
    prepared_ = plans_.insert(PlanKey(call_.operation, call_.settings.preference), std::move(*plan));
    prepared_->run->start(call_.send, call_.receive, call_.operand, sequence_);
    return ok();
}

Progress Communicator::advance() {
    if (on_device_) [[unlikely]]
        return Progress::done;
    if (uneven_) return advance_uneven();
    if (!prepared_) [[unlikely]] {
        if (in_access_) return advance_access();
        failure_ = prepare();
        if (!failure_) return Progress::failed;
        if (!prepared_) return Progress::blocked;
    }
    const Progress progress = prepared_->run->advance();
    if (progress == Progress::done || progress == Progress::blocked || progress == Progress::moved) [[likely]] {
        if (progress != Progress::blocked) waiting_.stir();
        return progress;
    }
    failure_ = progress == Progress::mismatch
                   ? die(watchdog_.mismatch(prepared_->run->suspect(), sequence_, prepared_->plan.operation,
                                            prepared_->run->suspect_operation()))
                   : die(prepared_->run->take_failure());
    return Progress::failed;
}

Status Communicator::pause(bool may_sleep) {
    if (has_windows()) {
        // Served requests are progress, and more may follow.
        if (one_sided_->serve()) return waiting_.stir(), ok();
        if (in_access_) return pause_for_access(may_sleep);
    }
    if (uneven_ || has_messages()) return pause_for_messages(may_sleep);
    const RankSet& missing = prepared_ ? prepared_->run->missing() : missing_binding_;
    // Connection set-up exchanges addresses through shared memory. Later, some connections are sockets.
    const bool sockets = prepared_ && prepared_->plan.networked;
    if (!(sockets ? waiting_.pause_on_sockets(missing, may_sleep, add_descriptors_)
                  : waiting_.pause(missing, may_sleep))) [[likely]]
        return ok();
    const CancelHeld held;
    watch(call_limit_);
    Status trouble = watchdog_.look(missing, sequence_, prepared_ ? prepared_->plan.operation : position().operation,
                                    waiting_.silence_us());
    if (!trouble) {
        waiting_.stir();
        return die(std::move(trouble));
    }
    return ok();
}

bool Communicator::is_beside(const Communicator& other) const {
    // Without shared memory, two ranks of a process are on two hosts.
    const bool same = membership_ && other.membership_
                          ? membership_->identity().name == other.membership_->identity().name
                          : segment_ == other.segment_;
    return same && rank_ != other.rank_;
}

bool Communicator::waits_for_call_of(const Communicator& other) const {
    if (!is_beside(other) || !in_call_ || on_device_ || !missing().contains(other.rank_)) return false;
    const auto report = other.segment_->row(other.rank_).position.read();
    return report && report->entered < sequence_;
}

std::string Communicator::text_of_wait() const {
    return fmt::format("rank {} waits in operation {}, {}", rank_, sequence_, position().operation.text());
}

void Communicator::break_off() noexcept {
    dead_ = true;
    char sentence[128];  // no allocation: memory may be exhausted
    const auto end =
        fmt::format_to_n(sentence, sizeof sentence,
                         "rank {} broke off in operation {}: out of memory, or an internal error", rank_, sequence_);
    segment_->raise(error::memory_exhausted, rank_, {sentence, std::min(end.size, sizeof sentence)},
                    {.rank = rank_, .sequence = sequence_});
    leave_buffers();
}

Status Communicator::run(const Call& call) {
    return see_through([&] { return begin(call); }, [&] { return advance(); }, [&] { return end(); });
}

int Communicator::make_reduction(const MadeReduction& reduction) {
    const auto made = std::make_shared<MadeReduction>(reduction);
    made->by.in_function_us = &segment_->row(rank_).in_function_us;
    reductions_[next_reduction_] = made;
    return next_reduction_++;
}

Status Communicator::state() const {
    if (device_) device_->look(false);
    return segment_->aborted() ? segment_->abort_status() : ok();
}

void Communicator::abort() {
    aborted_here_.store(true, std::memory_order_release);
    segment_->raise(error::abort_remote, rank_, fmt::format("rank {} aborted the communicator (weftCommAbort)", rank_),
                    {.rank = rank_});
}

uint64_t Communicator::flag_block_bytes() const {
    return uint64_t(flag_block_->reserved()) + SegmentLayout::flag_line_stride * flag_slots;
}

}  // namespace weft::internal
