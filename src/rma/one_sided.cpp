#include "src/rma/one_sided.hpp"

#include <algorithm>
#include <cstring>

#include "src/base/log.hpp"
#include "src/base/small_copy.hpp"
#include "src/executor/progress.hpp"
#include "src/segment/failure_record.hpp"
#include "src/segment/liveness.hpp"

namespace weft::internal {

// Bytes between two checks for failures. Other communicators of the thread progress there too.
static constexpr uint64_t copied_bytes = 1 << 20;

OneSided::OneSided(Segment& group, int rank, const Settings& settings, Connect connect, CalledBy called_by,
                   Disconnect disconnect)
    : segment_(&group),
      rank_(rank),
      settings_(settings),
      access_(group, rank, settings.access),
      signals_(group, rank),
      disconnect_(std::move(disconnect)),
      rma_messages_(
          group, rank,
          {std::move(connect), std::move(called_by),
           [this](uint32_t window, uint64_t offset, uint64_t bytes) { return windows_.memory(window, offset, bytes); },
           [this](int peer, int signal) { signals_.came(peer, signal); }}),
      remote_copy_(*settings.user_memory),
      windows_(group, rank, access_, *settings.user_memory) {}

// ---- Windows

Result<WindowPart> OneSided::open(uint32_t number, void* address, size_t bytes, size_t& heap_used) {
    WEFT_TRY(signals_.make(heap_used));
    WindowPart part = windows_.open(number, address, bytes);
    part.signals = signals_.place();
    return part;
}

void OneSided::complete(uint32_t number, std::span<const WindowPart> parts) {
    windows_.complete(number, parts);
    for (size_t peer = 0; peer < parts.size(); ++peer) signals_.found(int(peer), parts[peer].signals);
}

// ---- A call

Status OneSided::begin(const OneSidedCall& call) {
    using RmaOp = OneSidedCall::RmaOp;
    target_ = {};
    if (call.kind == RmaOp::put || call.kind == RmaOp::get) {
        HostWindow* const window = windows_.find(call.window);
        if (!window || window->parts.empty()) return fail(error::window_none, "the window is not registered");
        WEFT_TRY(check_inside(call, window->parts[size_t(call.peer)].bytes));
        if (call.bytes > 0) {
            const PeerWindow& reached = windows_.reach(*window, call.peer);
            target_.way = reached.way;
            if (reached.base) target_.base = reached.base + call.offset;
        }
        if (target_.base) WEFT_TRY(check_overlap(call, target_.base));
    }
    call_ = call;
    done_ = 0;
    missing_.clear();
    merge_waits(call.waits, waits_);
    if (target_.way == AccessPath::message) {
        begin_message();
    } else if (call.kind == RmaOp::signal || (call.kind == RmaOp::put && call.bytes == 0)) {
        send_signal();
    } else if (call.kind == RmaOp::flush) {
        for (const int peer : rma_messages_.unanswered()) rma_messages_.get(peer, {}, nullptr, 0);
    }
    return ok();
}

void OneSided::begin_message() {
    target_.way = AccessPath::message;
    if (call_.is_put())
        rma_messages_.put(call_.peer, {call_.window, call_.offset}, call_.data, call_.bytes, call_.signal);
    else
        rma_messages_.get(call_.peer, {call_.window, call_.offset}, call_.data, call_.bytes);
}

// The signal must not overtake earlier requests to the peer.
void OneSided::send_signal() {
    if (call_.signal == RmaMessages::no_signal) return;
    if (!segment_->local(call_.peer) || rma_messages_.used(call_.peer)) {
        rma_messages_.put(call_.peer, {}, nullptr, 0, call_.signal);
        target_.way = AccessPath::message;
    } else {
        signals_.raise(call_.peer, call_.signal);
    }
}

Progress OneSided::advance() {
    using RmaOp = OneSidedCall::RmaOp;
    if (call_.kind == RmaOp::wait) return await_signals();
    if (call_.kind == RmaOp::flush) return flush();
    if (target_.way == AccessPath::message) return await_peer();
    if (target_.way == AccessPath::transport) return copy_by_transport();
    return done_ < call_.bytes ? copy_some() : Progress::done;
}

Progress OneSided::copy_some() {
    const uint64_t bytes = std::min(copied_bytes, call_.bytes - done_);
    const bool puts = call_.kind == OneSidedCall::RmaOp::put;
    if (!signals_.enter(call_.peer)) {
        if (segment_->aborted()) return fails(FailureRecord(*segment_).status());
        return fails(fail(error::rank_left, "{} left the communicator: its part of the window is gone",
                          segment_->name_of(call_.peer))
                         .about({.rank = call_.peer, .peer = rank_}));
    }
    Status copied;
    std::byte* ours = call_.data + done_;
    if (target_.way == AccessPath::mapped) {
        std::byte *to = puts ? target_.base + done_ : ours, *from = puts ? ours : target_.base + done_;
        if (bytes <= 64)
            copy_small(to, from, bytes);
        else if (to != from)
            settings_.cpu_kernels->copy({to, from, bytes, Stores::ordinary});
    } else {
        const auto& parts = windows_.find(call_.window)->parts;
        const uint64_t there = parts[size_t(call_.peer)].address + call_.offset + done_;
        // The pid of a process that has ended may belong to another process by now.
        if (!Liveness(*segment_).alive(call_.peer))
            copied = fail(error::rank_died, "{} died: its part of the window is gone", segment_->name_of(call_.peer))
                         .about({.rank = call_.peer, .peer = rank_});
        else
            copied = puts ? access_.cma().write(call_.peer, ours, there, bytes)
                          : access_.cma().read(call_.peer, ours, there, bytes);
    }
    signals_.leave();
    // If the communicator was aborted, the peer may have freed its memory, and the data that was read is invalid.
    if (copied && segment_->aborted()) copied = FailureRecord(*segment_).status();
    if (!copied) return fails(std::move(copied));
    done_ += bytes;
    if (done_ < call_.bytes) return Progress::moved;
    if (puts) send_signal();
    return target_.way == AccessPath::message ? Progress::moved : Progress::done;
}

// Between hosts, without the target's help once the link exists.
Progress OneSided::copy_by_transport() {
    missing_.clear();
    missing_.insert(call_.peer);
    const bool moved = rma_messages_.serve(&missing_);
    if (Status trouble = rma_messages_.trouble(call_.peer); !trouble) return fails(std::move(trouble));
    if (!remote_copy_.active()) {
        if (!rma_messages_.link(call_.peer).connected) return moved ? Progress::moved : Progress::blocked;
        if (!attach()) return begin_message(), Progress::moved;
    }
    auto progress = remote_copy_.advance();
    if (!progress) return fails(rma_messages_.breaks(call_.peer, progress.take_status()));
    rma_messages_.accesses(call_.peer);
    if (*progress == Progress::blocked && moved) return Progress::moved;
    if (*progress != Progress::done) return *progress;
    missing_.clear();
    if (call_.is_put()) send_signal();
    return target_.way == AccessPath::message ? Progress::moved : Progress::done;
}

// Begins the copy. False: the rank must send a request.
bool OneSided::attach() {
    HostWindow& window = *windows_.find(call_.window);
    PeerWindow& reached = window.reached[size_t(call_.peer)];
    const PeerLink& link = rma_messages_.link(call_.peer);
    if (!reached.part) {
        const WindowPart& part = window.parts[size_t(call_.peer)];
        // The link may use another transport than the window's.
        auto attached = link.user_memory ? link.target->attach(std::span(part.key).first(part.key_bytes))
                                         : Result<std::unique_ptr<RemoteMemory>>(std::unique_ptr<RemoteMemory>());
        if (!attached) WEFT_LOG_RANK(rank_, info, mem, "{}", attached.status().sentence());
        if (!attached || !*attached) return reached.way = AccessPath::message, false;
        reached.part = std::move(*attached);
    }
    remote_copy_.begin(call_, *link.target, *reached.part);
    return true;
}

// Waits until the peer has received our request, or answered it.
Progress OneSided::await_peer() {
    missing_.clear();
    missing_.insert(call_.peer);
    const bool moved = rma_messages_.serve(&missing_);
    if (rma_messages_.locally_complete(call_.peer)) return Progress::done;
    if (Status trouble = rma_messages_.trouble(call_.peer); !trouble) return fails(std::move(trouble));
    return moved ? Progress::moved : Progress::blocked;
}

Progress OneSided::await_signals() {
    bool moved = false;
    for (int look = 0; look < 2; ++look) {
        missing_.clear();
        for (const SignalWait& wait : waits_)
            if (signals_.pending(wait.peer, wait.signal) < wait.count) missing_.insert(wait.peer);
        if (missing_.empty()) {
            for (const SignalWait& wait : waits_) signals_.take(wait.peer, wait.signal, wait.count);
            return Progress::done;
        }
        if (look > 0 || !(moved = rma_messages_.serve(&missing_))) break;
    }
    Status trouble;
    missing_.for_each([&](int peer) {
        if (trouble) trouble = rma_messages_.trouble(peer);
    });
    return !trouble ? fails(std::move(trouble)) : moved ? Progress::moved : Progress::blocked;
}

Progress OneSided::flush() {
    missing_.clear();
    for (const int peer : rma_messages_.unanswered()) missing_.insert(peer);
    const bool moved = rma_messages_.serve(&missing_);
    missing_.clear();
    Status trouble;
    for (const int peer : rma_messages_.unanswered()) {
        missing_.insert(peer);
        if (trouble) trouble = rma_messages_.trouble(peer);
    }
    if (!trouble) return fails(std::move(trouble));
    return missing_.empty() ? Progress::done : moved ? Progress::moved : Progress::blocked;
}

Progress OneSided::fails(Status failure) {
    failure_ = std::move(failure);
    return Progress::failed;
}

bool OneSided::connecting() const {
    bool any = false;
    missing_.for_each([&](int peer) { any |= rma_messages_.connecting(peer); });
    return any;
}

PartnerWait OneSided::awaited() const {
    int peer = call_.peer;
    missing_.for_each([&](int rank) { peer = rank; });
    return {call_.kind == OneSidedCall::RmaOp::wait ? PartnerWait::signal : PartnerWait::one_sided, peer};
}

std::string OneSided::owed_by(int peer) {
    using RmaOp = OneSidedCall::RmaOp;
    std::string owed;
    if (remote_copy_.active())
        return fmt::format("is the target of a transfer of rank {} that the network does not complete", rank_);
    for (const SignalWait& wait : waits_) {
        const uint64_t come = signals_.pending(wait.peer, wait.signal);
        if (wait.peer == peer && come < wait.count)
            owed += (owed.empty() ? "" : ", ") + owed_signals(rank_, wait.signal, come, wait.count);
    }
    if (!owed.empty()) return owed;
    const char* what = call_.kind == RmaOp::get   ? "has not sent what rank {} gets from its window"
                       : call_.kind == RmaOp::put ? "has not taken what rank {} puts into its window"
                                                  : "has not taken the signals and data of rank {}";
    return fmt::format(fmt::runtime(what), rank_) + ": across hosts a rank does so inside its Weft calls only";
}

// RmaMessages allocates texts, so the transfer ends before.
void OneSided::abandon() {
    const bool disconnects = remote_copy_.writes_buffer();
    remote_copy_.abandon();
    waits_.clear();
    if (disconnects) {
        windows_.forget(call_.peer);
        disconnect_(call_.peer);
    }
    rma_messages_.abandon();
}

}  // namespace weft::internal
