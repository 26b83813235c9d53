#include "src/rma/one_sided.hpp"

#include <algorithm>
#include <cstring>

#include "src/base/log.hpp"
#include "src/base/small_copy.hpp"
#include "src/executor/progress.hpp"
#include "src/segment/arena.hpp"
#include "src/segment/failure_record.hpp"
#include "src/segment/liveness.hpp"

namespace weft::internal {

// Bytes between two checks for failures. Other communicators of the thread progress there too.
static constexpr uint64_t copied_bytes = 1 << 20;

OneSided::OneSided(Segment& group, int rank, const Settings& settings, Connect connect, CalledBy called_by)
    : segment_(&group),
      rank_(rank),
      settings_(settings),
      access_(group, rank, settings.access),
      signals_(group, rank),
      rma_messages_(group, rank,
                    {std::move(connect), std::move(called_by),
                     [this](uint32_t window, uint64_t offset, uint64_t bytes) { return memory(window, offset, bytes); },
                     [this](int peer, int signal) { signals_.came(peer, signal); }}) {}

// ---- Windows

Result<WindowPart> OneSided::open(uint32_t number, void* address, size_t bytes, size_t& heap_used) {
    WEFT_TRY(signals_.make(heap_used));
    windows_[number] = {static_cast<std::byte*>(address), bytes};
    return WindowPart{reinterpret_cast<uint64_t>(address), bytes, bytes > 0 ? Arena::place_of(address, bytes) : 0,
                      signals_.place()};
}

void OneSided::complete(uint32_t number, std::span<const WindowPart> parts) {
    Window& window = windows_[number];
    window.parts.assign(parts.begin(), parts.end());
    window.reached.resize(parts.size());
    for (size_t peer = 0; peer < parts.size(); ++peer) signals_.found(int(peer), parts[peer].signals);
}

std::byte* OneSided::memory(uint32_t number, uint64_t offset, uint64_t bytes) {
    const auto window = windows_.find(number);
    if (window == windows_.end() || offset > window->second.bytes || bytes > window->second.bytes - offset)
        return nullptr;
    return window->second.address + offset;
}

const OneSided::PeerWindow& OneSided::reach(Window& window, int peer) {
    PeerWindow& reached = window.reached[size_t(peer)];
    if (reached.way == AccessPath::unknown) {
        reached = find_way(window.parts[size_t(peer)], peer);
        WEFT_LOG_RANK(rank_, info, mem, "memory of rank {}'s window of {} bytes is {}", peer,
                      window.parts[size_t(peer)].bytes,
                      reached.way == AccessPath::mapped   ? "read and written in place"
                      : reached.way == AccessPath::kernel ? "copied by the kernel"
                                                          : "asked of that rank");
    }
    return reached;
}

// A local decision: other ranks do not need to know how this rank reaches their memory.
OneSided::PeerWindow OneSided::find_way(const WindowPart& part, int peer) {
    if (!segment_->local(peer)) return {AccessPath::message};
    if (segment_->same_process(rank_, peer)) return {AccessPath::mapped, reinterpret_cast<std::byte*>(part.address)};
    std::byte* arena = part.in_arena != 0 ? access_.arena(peer) : nullptr;
    if (arena) return {AccessPath::mapped, arena + (part.in_arena - 1)};
    return {access_.cma_works(peer) ? AccessPath::kernel : AccessPath::message};
}

// ---- A call

Status OneSided::begin(const OneSidedCall& call) {
    using RmaOp = OneSidedCall::RmaOp;
    reached_ = {};
    if (call.kind == RmaOp::put || call.kind == RmaOp::get) {
        const auto place = windows_.find(call.window);
        if (place == windows_.end() || place->second.parts.empty())
            return fail(error::window_none, "the window is not registered");
        Window& window = place->second;
        const WindowPart& part = window.parts[size_t(call.peer)];
        WEFT_TRY(check_inside(call, part.bytes));
        if (call.bytes > 0) reached_ = reach(window, call.peer);
        if (reached_.base) {
            reached_.base += call.offset;
            WEFT_TRY(check_overlap(call, reached_.base));
        }
    }
    call_ = call;
    done_ = 0;
    missing_.clear();
    merge_waits(call.waits, waits_);
    if (reached_.way == AccessPath::message) {
        if (call.kind == RmaOp::put)
            rma_messages_.put(call.peer, {call.window, call.offset}, call.data, call.bytes, call.signal);
        else
            rma_messages_.get(call.peer, {call.window, call.offset}, call.data, call.bytes);
    } else if (call.kind == RmaOp::signal || (call.kind == RmaOp::put && call.bytes == 0)) {
        send_signal();
    } else if (call.kind == RmaOp::flush) {
        for (const int peer : rma_messages_.unanswered()) rma_messages_.get(peer, {}, nullptr, 0);
    }
    return ok();
}

// The signal must not overtake earlier requests to the peer.
void OneSided::send_signal() {
    if (call_.signal == RmaMessages::no_signal) return;
    if (!segment_->local(call_.peer) || rma_messages_.used(call_.peer)) {
        rma_messages_.put(call_.peer, {}, nullptr, 0, call_.signal);
        reached_.way = AccessPath::message;
    } else {
        signals_.raise(call_.peer, call_.signal);
    }
}

Progress OneSided::advance() {
    using RmaOp = OneSidedCall::RmaOp;
    if (call_.kind == RmaOp::wait) return await_signals();
    if (call_.kind == RmaOp::flush) return flush();
    if (reached_.way == AccessPath::message) return await_peer();
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
    if (reached_.way == AccessPath::mapped) {
        std::byte *to = puts ? reached_.base + done_ : ours, *from = puts ? ours : reached_.base + done_;
        if (bytes <= 64)
            copy_small(to, from, bytes);
        else if (to != from)
            settings_.cpu_kernels->copy({to, from, bytes, Stores::ordinary});
    } else {
        const auto& parts = windows_.at(call_.window).parts;
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
    return reached_.way == AccessPath::message ? Progress::moved : Progress::done;
}

// Waits until the peer has received our request, or answered it.
Progress OneSided::await_peer() {
    const bool moved = rma_messages_.serve();
    if (rma_messages_.locally_complete(call_.peer)) return Progress::done;
    if (Status trouble = rma_messages_.trouble(call_.peer); !trouble) return fails(std::move(trouble));
    missing_.clear();
    missing_.insert(call_.peer);
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
        if (look > 0 || !(moved = rma_messages_.serve())) break;
    }
    Status trouble;
    missing_.for_each([&](int peer) {
        if (trouble) trouble = rma_messages_.trouble(peer);
    });
    return !trouble ? fails(std::move(trouble)) : moved ? Progress::moved : Progress::blocked;
}

Progress OneSided::flush() {
    const bool moved = rma_messages_.serve();
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

void OneSided::abandon() {
    rma_messages_.abandon();
    waits_.clear();
}

}  // namespace weft::internal
