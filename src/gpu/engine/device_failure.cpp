#include "src/gpu/engine/device_failure.hpp"

#include <algorithm>
#include <atomic>
#include <tuple>

#include "src/control/ended_leaders.hpp"
#include "src/control/remote_health.hpp"
#include "src/p2p/message_mark.hpp"
#include "src/p2p/peer_buffers.hpp"
#include "src/rma/signals.hpp"
#include "src/segment/first_cause.hpp"
#include "src/segment/liveness.hpp"

namespace weft::internal {

namespace {

// An unknown operation is called `an operation`, or `something else` if it is the other rank's.
Status mismatch(int rank, const std::optional<Operation>& called, int other,
                const std::optional<Operation>& other_called) {
    if (called && other_called && mismatch_between(*called, *other_called) == error::mismatch_algorithm)
        return fail(error::mismatch_algorithm,
                    "ranks {} and {} both called {} but chose different kernels: are they the same build, with the "
                    "same WEFT_ options and the same weftCommSetCallConfig?",
                    std::min(rank, other), std::max(rank, other), called->text());
    std::string ours = called ? called->text() : "an operation",
                theirs = other_called ? other_called->text() : "something else";
    if (rank > other) std::swap(rank, other), std::swap(ours, theirs);
    return fail(called && other_called ? mismatch_between(*called, *other_called) : error::mismatch_call,
                "rank {} called {}, rank {} called {}; every rank must make the same calls in the same order", rank,
                ours, other, theirs);
}

FailureFacts facts_of(const cuda::FailureReport& report) { return {.rank = report.peer, .peer = report.rank}; }

}  // namespace

Status explain_counts(int rank, const cuda::CountFault& fault) {
    const auto [counts, places, buffer] = fault.outgoing ? std::tuple("sendcounts", "sdispls", "sendbuff")
                                                         : std::tuple("recvcounts", "rdispls", "recvbuff");
    const cuda::CountReport& report = fault.report;
    const std::string call = fmt::format("rank {} called weftAlltoAllvDeviceCounts", rank);
    const FailureFacts facts{.rank = rank, .operation = Collective::all_to_all_v};
    switch (report.fault) {
        case cuda::CountReport::outside: break;
        case cuda::CountReport::own:
            return fail(error::argument_counts,
                        "{} with sendcounts[{}] {} and recvcounts[{}] {}: a rank receives from itself as much as it "
                        "sends to itself",
                        call, fault.peer, report.count, fault.peer, report.other)
                .about(facts);
        case cuda::CountReport::overlap:
            return fail(error::argument_counts, "{}: {}", call,
                        overlapping_parts(fault.peer, report.other_rank, report.count, report.other, counts))
                .about(facts);
        case cuda::CountReport::sent:
            return fail(error::argument_overlap, "{}: {}", call, overlapping_buffers(fault.peer, report.other_rank))
                .about(facts);
    }
    return fail(error::argument_counts, "{} with {}[{}] {} and {}[{}] {}, but {} has room for {} elements", call,
                counts, fault.peer, report.count, places, fault.peer, report.other, buffer, report.room)
        .about(facts);
}

void PlannedOperations::add(const Operation& operation) {
    std::lock_guard lock(mutex_);
    if (std::find(all_.begin(), all_.end(), operation) != all_.end()) return;
    if (all_.size() >= most) all_.clear();
    all_.push_back(operation);
}

std::optional<Operation> PlannedOperations::find(uint32_t wanted) const {
    std::lock_guard lock(mutex_);
    for (const Operation& operation : all_)
        if (fingerprint(operation) == wanted) return operation;
    return {};
}

std::string DeviceDiagnosis::name_of(int other) const {
    return group.name_of(other) + (Liveness(group).stopped(other) ? " is stopped (SIGSTOP or a debugger); it" : "");
}

std::string DeviceDiagnosis::waited(const cuda::FailureReport& report, const std::string& what) const {
    const uint64_t timeout_ms = report.timeout_ns / 1'000'000;
    const bool by_stream = report.waiting == cuda::KernelWait::ready || report.waiting == cuda::KernelWait::done;
    return fmt::format("the {} of rank {} waited {:.1f} s for {}, the deadline ({}) is {} ms",
                       by_stream ? "stream" : "kernel", report.rank, double(timeout_ms) / 1e3, what,
                       report.timeout_ns == timeout_ns ? "WEFT_TIMEOUT_MS" : "timeoutMs of the call's config",
                       timeout_ms);
}

std::string DeviceDiagnosis::position_text(int other) const {
    const auto report = group.row(other).position.read();
    const std::string text = name_of(other);
    if (!report) return text + " is about to call something";
    if (report->entered == 0) return text + " has not called anything yet";
    return text + fmt::format(" last called operation {}, {}", report->entered, report->operation.text());
}

bool DeviceDiagnosis::has_made_our_calls(int other) const {
    const auto own = group.row(rank).position.read(), theirs = group.row(other).position.read();
    return own && theirs && theirs->entered >= own->entered;
}

Status DeviceDiagnosis::explain_message(const cuda::FailureReport& report, const cuda::MessageReport& message) const {
    const auto view = [](uint32_t mark, uint64_t bytes) {
        const weftDataType_t type = type_of(mark);
        return MessageView{mark, is_datatype(type) ? bytes / size_of(type) : bytes};
    };
    const MessageView ours = view(report.fingerprint, message.bytes);
    if (report.failure == cuda::KernelFailure::mismatch)
        return Status(error::mismatch_message,
                      differing_messages(report.peer, view(report.other_fingerprint, message.other_bytes), report.rank,
                                         ours))
            .about(facts_of(report));
    return fail(error::timeout_message, "{}: {} {}", waited(report, "messages"), name_of(report.peer),
                owed_message(report.rank, message.outgoing, message.begun, ours))
        .about(facts_of(report));
}

Status DeviceDiagnosis::explain(const cuda::FailureReport& report, const cuda::MessageReport& message,
                                const cuda::SignalReport& signal) const {
    if (report.failure == cuda::KernelFailure::counts)
        return explain_counts(report.rank, {report.peer, message.outgoing, message.counts});
    if (message.valid &&
        (report.failure == cuda::KernelFailure::mismatch || report.failure == cuda::KernelFailure::timeout))
        return explain_message(report, message);
    if (report.waiting == cuda::KernelWait::signal && report.failure == cuda::KernelFailure::timeout)
        return fail(error::timeout_signal, "{}: {} {}", waited(report, "signals"), name_of(report.peer),
                    owed_signals(report.rank, signal.signal, signal.received, signal.wanted))
            .about(facts_of(report));
    const auto called = known.find(report.fingerprint);
    const std::string ours = called ? called->text() : "an operation";
    FailureFacts facts = facts_of(report);
    if (called) facts.operation = called->collective;
    switch (report.failure) {
        case cuda::KernelFailure::mismatch: {
            auto theirs = known.find(report.other_fingerprint);
            if (const auto position = group.row(report.peer).position.read();
                position && fingerprint(position->operation) == report.other_fingerprint)
                theirs = position->operation;
            return mismatch(report.rank, called, report.peer, theirs).about(facts);
        }
        case cuda::KernelFailure::timeout:
            return fail(error::timeout_collective, "{}: {}{}",
                        waited(report, fmt::format("rank {} in {}", report.peer, ours)),
                        report.peer >= 0 ? position_text(report.peer) : "no rank in particular",
                        report.peer >= 0 && has_made_our_calls(report.peer)
                            ? "; it has made this call, and its kernel may be behind other work of its stream, behind "
                              "another stream's in a hardware queue (WEFT_GPU_QUEUES), or have found no room on the "
                              "device (WEFT_GPU_BLOCKS; docs/guide/gpu.md, Several communicators)"
                            : "")
                .about(facts);
        // The error was recorded before the abort flag was set.
        case cuda::KernelFailure::aborted:
        case cuda::KernelFailure::counts:
        case cuda::KernelFailure::none: break;
    }
    return fail(error::internal_state, "the kernel of rank {} ended {} without a reason", report.rank, ours)
        .about(facts);
}

bool DeviceDiagnosis::informed(const cuda::FailureReport& report) const {
    if (report.failure != cuda::KernelFailure::mismatch || group.local(report.peer)) return true;
    const auto position = group.row(report.peer).position.read();
    return (position && fingerprint(position->operation) == report.other_fingerprint) ||
           known.find(report.other_fingerprint).has_value();
}

Status DeviceDiagnosis::check_peers(const std::function<bool(int other, bool died)>& waiting) const {
    const auto own = group.row(rank).position.read();
    // A call on host memory is watched by its own ranks.
    if (!own || own->entered == 0 || (own->inside() && own->operation.space == Space::host)) return ok();
    for (int other = 0; other < group.ranks(); ++other) {
        if (other == rank) continue;
        const RankRow& row = group.row(other);
        const bool left = row.state.load(std::memory_order_acquire) == RankState::left;
        const auto theirs = row.position.read();
        const bool behind = left && theirs && theirs->entered < own->entered;
        // A rank that left in order has no kernel after it has set GpuRow::left. A process that ends takes its kernels
        // with it.
        const bool dead = row.gpu.left.load(std::memory_order_acquire) == 0 && !Liveness(group).alive(other);
        // Kernels compare operations only if they communicate directly; over connections not all do.
        const bool differs = theirs && theirs->entered == own->entered && own->operation.space == Space::device &&
                             theirs->operation != own->operation;
        if ((!dead && !behind && !differs) || !waiting(other, !behind && !differs)) continue;
        if (dead && row.gpu.left.load(std::memory_order_acquire) != 0) continue;  // it left between the two polls
        // A mismatched call is the cause of a later exit, so it is reported first.
        const FailureFacts facts{
            .rank = other, .peer = rank, .operation = own->operation.collective, .sequence = own->entered};
        if (differs) return mismatch(rank, own->operation, other, theirs->operation).about(facts);
        const LossRecord& loss = group.header().loss;
        if (dead && !group.local(other) && loss.state.load(std::memory_order_acquire) &&
            loss.host == group.rank_info(other).host)
            return first_cause(group,
                               fail(error::host_lost, "{}. Kernels of rank {} may wait for rank {} in operation {}, {}",
                                    loss.sentence, rank, other, own->entered, own->operation.text())
                                   .about(facts));
        if (dead)
            return first_cause(
                group,
                fail(error::rank_died,
                     "{} died; its last call was operation {}. Kernels of rank {} may wait for it in "
                     "operation {}, {}",
                     group.name_of(other), theirs ? theirs->entered : 0, rank, own->entered, own->operation.text())
                    .about(facts));
        return first_cause(
            group,
            fail(error::rank_left, "{} left the communicator after operation {}; rank {} called operation {}, {}",
                 group.name_of(other), theirs->entered, rank, own->entered, own->operation.text())
                .about(facts),
            other);
    }
    return ok();
}

namespace {

uint64_t word_of_block(const uint64_t& word) {
    return std::atomic_ref(const_cast<uint64_t&>(word))
        .load(std::memory_order_acquire);  // pairs with the release store of `polls` in MessageKernel::poll
}
cuda::RankBits awaited(const cuda::BlockWait& wait) {
    return {word_of_block(wait.ranks.low), word_of_block(wait.ranks.high)};
}
uint64_t polls_of(const cuda::BlockWait& wait) { return word_of_block(wait.polls); }

}  // namespace

int64_t DepartedPeers::waited_us(const cuda::BlockWait* block_waits, int64_t now_us) {
    if (const cuda::BlockWait& wait = block_waits[waiting_]; awaited(wait).none() || polls_of(wait) < seen_polls_)
        since_us_ = 0;
    for (int block = 0; block < cuda::blocks_max && since_us_ == 0; ++block)
        if (!awaited(block_waits[block]).none()) waiting_ = block, since_us_ = now_us;
    seen_polls_ = polls_of(block_waits[waiting_]);
    return since_us_ == 0 ? 0 : now_us - since_us_;
}

Status DepartedPeers::look(const Segment& group, int rank, const cuda::BlockWait* block_waits, int64_t still_us,
                           bool over_hosts) {
    const auto waits = [&](int block, int other) { return awaited(block_waits[block]).has(other); };
    // Words over NVLink do not stay on their way.
    const auto near = [&](int other) { return over_hosts || group.local(other); };
    const auto departed = [&](int other) {
        return group.row(other).state.load(std::memory_order_acquire) == RankState::left;
    };
    // A rank that left in order, or whose process ended, has no kernel any more. A rank that left on another host
    // usually closes the connection after its last data, which ProxyConnections::trouble() reports sooner.
    const auto left = [&](int other) {
        return departed(other) && (!near(other) || group.row(other).gpu.left.load(std::memory_order_acquire) != 0);
    };
    // A rank of an ended leader on the way to `other`, which could not report the end of that rank or of its kernels;
    // -1: none.
    const auto dead_leader = [&](int other) {
        if (group.local(other) || still_us < RemoteHealth::departed_us) return -1;
        const EndedLeaders ended(group);
        return departed(other) ? ended.on_the_way_to(other) : ended.dead_on_the_way_to(other);
    };
    const auto gone = [&](int other) {
        const bool in_order = left(other);
        if (!in_order && Liveness(group).alive(other)) return dead_leader(other) >= 0;
        return near(other) || still_us >= (in_order ? RemoteHealth::departed_us : RemoteHealth::settled_us);
    };
    if (gone_ >= 0) {
        const uint64_t polls = polls_of(block_waits[block_]);
        const bool still = polls >= polls_ && waits(block_, gone_) && gone(gone_);
        // The block has polled all its messages again since then.
        const bool sure = still && polls >= polls_ + 2;
        const int leader = sure && !left(gone_) && Liveness(group).alive(gone_) ? dead_leader(gone_) : -1;
        if (leader >= 0) return EndedLeaders(group).failure(leader, rank, gone_, false);
        if (sure)
            return first_cause(group,
                               fail(left(gone_) ? error::rank_left : error::rank_died,
                                    "{} {}, and kernels of rank {} wait for messages with it or for its signals",
                                    group.name_of(gone_), left(gone_) ? "left the communicator" : "died", rank)
                                   .about({.rank = gone_, .peer = rank}),
                               gone_);
        if (still) return ok();
        gone_ = -1;
    }
    for (int block = 0; block < cuda::blocks_max && gone_ < 0; ++block)
        for (int other = 0; other < group.ranks() && gone_ < 0; ++other)
            if (waits(block, other) && gone(other)) gone_ = other, block_ = block;
    if (gone_ >= 0) polls_ = polls_of(block_waits[block_]);
    return ok();
}

}  // namespace weft::internal
