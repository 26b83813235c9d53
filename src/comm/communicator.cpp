#include "src/comm/communicator.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "src/base/cancellation.hpp"
#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/segment/failure_record.hpp"
#include "src/segment/first_cause.hpp"
#include "src/segment/liveness.hpp"

namespace weft::internal {

static constexpr int64_t leave_patience_us = 2'000'000;

Result<std::unique_ptr<Communicator>> Communicator::make(std::shared_ptr<Segment> group,
                                                         std::shared_ptr<Membership> membership,
                                                         std::unique_ptr<GpuEngine> device, int rank,
                                                         CommunicatorOptions options) {
    auto flag_block = FlagBlock::open(*group, rank, options.slots_later);
    if (!flag_block) {
        FailureRecord(*group).raise(flag_block.status(), rank);
        return flag_block.take_status();
    }
    if (device) {
        if (Status begun = device->begin(options.timeout_ms); !begun) {
            FailureRecord(*group).raise(begun, rank);
            return begun;
        }
    }
    return std::unique_ptr<Communicator>(new Communicator(std::move(group), std::move(membership), std::move(device),
                                                          rank, options, std::move(*flag_block)));
}

Communicator::Communicator(std::shared_ptr<Segment> group, std::shared_ptr<Membership> membership,
                           std::unique_ptr<GpuEngine> device, int rank, const CommunicatorOptions& options,
                           std::unique_ptr<FlagBlock> flag_block)
    : context_(std::move(group), std::move(membership), std::move(device), rank, options, std::move(flag_block)),
      returned_errors_(std::make_unique<ReturnedErrorScope>(context_.segment, context_.membership, rank)),
      inputs_(context_),
      calls_(context_) {
    context_.waiting.seen_here();
    const std::string& name = context_.options.name;
    WEFT_LOG_RANK(rank, info, init, "rank {} of {} joined{}{}, process {}", rank, ranks(),
                  name.empty() ? "" : " communicator ", name, getpid());
}

Communicator::~Communicator() {
    Segment& segment = *context_.segment;
    returned_errors_.reset();
    // From here on no rank waits for us, and the segment keeps the data that peers still read.
    context_.row().state.store(RankState::left, std::memory_order_release);
    context_.segment->wake();
    context_.segment->doorbell().ring();
    calls_.windows().await_untouched();
    RootRendezvous::close_finished();
    // Returns when our kernels have ended. Peers that call again meanwhile learn that we have left.
    context_.device.reset();
    // A rank that enqueued calls and left got no error from them.
    if (!dead_ && !aborted_here() && segment.aborted())
        WEFT_LOG_RANK(rank(), warn, coll, "leaves a communicator that has failed, with what it had enqueued: {}",
                      FailureRecord(segment).status().text());
    WEFT_LOG_RANK(rank(), info, init, "rank {} of {} left after {} operations", rank(), ranks(), context_.sequence);
}

Status Communicator::die(Status failure) {
    const CancelHeld held;
    dead_ = true;
    Segment& segment = *context_.segment;
    // The rank that saw the cause may be about to report it.
    if (failure.code() == weftRemoteError && !segment.one_host())
        if (Status known = context_.watchdog.await_cause([this] { return calls_.cause(); }); !known)
            failure = std::move(known);
    failure = first_cause(segment, std::move(failure));
    // All ranks report the first error, word for word.
    if (!FailureRecord(segment).raise(failure, rank())) failure = FailureRecord(segment).status();
    leave_buffers();
    abandon_windows();
    if (aborted_here()) return fail(error::abort_local, "the communicator was aborted here, by weftCommAbort");
    WEFT_LOG_RANK(rank(), warn, coll, "{}", failure.text());
    return failure;
}

// From here on this rank accesses no peer's buffers.
void Communicator::leave_buffers() {
    // Pairs with the ones in ExportedBuffers::decide() and Cma::remote_memory_valid().
    std::atomic_thread_fence(std::memory_order_seq_cst);
    context_.row().gave_up.store(std::max<uint64_t>(1, context_.sequence), std::memory_order_release);
}

// Afterwards no network writes to the buffer of a get.
void Communicator::abandon_windows() {
    if (!calls_.windows().exists()) return;
    try {
        calls_.windows().host().abandon();
    } catch (const std::bad_alloc&) {  // for texts, when the transfer has ended
    }
}

// Peers may still access this call's buffers in place, and the user may free them when we return.
// The abort flag is set, so every running peer leaves soon. The wait for a stopped peer is bounded.
void Communicator::await_borrowers() {
    if (!dead_) return;
    const CancelHeld held;
    calls_.withdraw();
    abandon_windows();  // an exception may have kept die() from it
    const int64_t until = now_us() + leave_patience_us;
    const Segment& segment = *context_.segment;
    for (int peer = 0; peer < ranks(); ++peer)
        while (peer != rank() && calls_.may_be_using(peer) &&
               segment.row(peer).state.load(std::memory_order_acquire) != RankState::left &&
               Liveness(segment).alive(peer)) {
            if (now_us() > until) {
                WEFT_LOG_RANK(
                    rank(), warn, coll,
                    "returns although rank {} (pid {}) does not move and may still use the buffers of operation {}",
                    peer, segment.row(peer).pid, context_.sequence);
                return;
            }
            sched_yield();
        }
    calls_.windows().await_untouched();
}

Status Communicator::usable() {
    if (context_.device) context_.device->look(true);
    if (dead_ || context_.segment->aborted()) [[unlikely]] {
        if (!std::exchange(dead_, true) && !calls_.in_collective()) {
            leave_buffers();
            abandon_windows();
        }
        const Status cause = FailureRecord(*context_.segment).status();
        if (cause) return fail(error::abort_local, "the communicator is dead: destroy it and make a new one");
        return fail(cause, "the communicator is dead, destroy it and make a new one; it died of: {}", cause.sentence());
    }
    if (finalized_)
        return fail(error::usage_finalized,
                    "the communicator was finalized (weftCommFinalize) and makes no more calls: end it with "
                    "weftCommDestroy");
    return ok();
}

Status Communicator::not_begun(Begun begun) {
    Status reason = calls_.take_failure();
    return begun == Begun::refused ? std::move(reason) : die(std::move(reason));
}

Status Communicator::begin_coalesced(std::span<const Call> calls) {
    WEFT_TRY(usable());
    const Begun begun = calls_.begin_coalesced(calls);
    return begun == Begun::yes ? ok() : not_begun(begun);
}

void Communicator::call_failed() {
    failure_ = die(calls_.take_failure());
    calls_.abandon_call();
}

Status Communicator::pause(bool may_sleep) {
    Status trouble = calls_.pause(may_sleep);
    return trouble ? std::move(trouble) : die(std::move(trouble));
}

Status Communicator::begin_messages(std::span<const Call> messages) {
    WEFT_TRY(usable());
    const Begun begun = calls_.begin_messages(messages);
    return begun == Begun::yes ? ok() : not_begun(begun);
}

Progress Communicator::advance_messages() {
    const Progress progress = calls_.advance_messages();
    if (progress == Progress::failed) [[unlikely]] {
        failure_ = die(calls_.take_failure());
        calls_.abandon_messages();
    }
    return progress;
}

void Communicator::stop(const std::string& why) {
    dead_ = true;
    FailureRecord(*context_.segment).raise(error::abort_remote, rank(), why, {.rank = rank()});
    if (!calls_.in_collective()) leave_buffers();
}

Status Communicator::finalize() {
    WEFT_TRY(usable());
    context_.finish_device();
    WEFT_TRY(usable());
    finalized_ = true;
    return ok();
}

void Communicator::break_off() noexcept {
    dead_ = true;
    char sentence[128];  // no allocation: memory may be exhausted
    const auto end = fmt::format_to_n(sentence, sizeof sentence,
                                      "rank {} broke off in operation {}: out of memory, or an internal error", rank(),
                                      context_.sequence);
    FailureRecord(*context_.segment)
        .raise(error::memory_exhausted, rank(), {sentence, std::min(end.size, sizeof sentence)},
               {.rank = rank(), .sequence = context_.sequence});
    leave_buffers();
}

Status Communicator::state() const {
    if (context_.device) context_.device->look(false);
    return context_.segment->aborted() ? FailureRecord(*context_.segment).status() : ok();
}

void Communicator::abort() {
    aborted_here_.store(true, std::memory_order_release);
    FailureRecord(*context_.segment)
        .raise(error::abort_remote, rank(), fmt::format("rank {} aborted the communicator (weftCommAbort)", rank()),
               {.rank = rank()});
}

}  // namespace weft::internal
