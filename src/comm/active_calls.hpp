// active_calls.hpp: the calls in progress on one rank: one active call of any kind, and messages beside it.
// It begins a call in the engine of its kind and waits for all that is blocked. The communicator decides what a failure
// means for the other ranks.
#pragma once
#include <span>
#include <variant>

#include "src/comm/engines/copy_engine_calls.hpp"
#include "src/comm/engines/host_collectives.hpp"
#include "src/comm/engines/kernel_calls.hpp"
#include "src/comm/engines/one_sided_calls.hpp"
#include "src/comm/engines/point_to_point.hpp"
#include "src/comm/engines/staged_calls.hpp"
#include "src/comm/engines/uneven_collectives.hpp"

namespace weft::internal {

// Owned by the communicator. Thread-bound to the rank.
class ActiveCalls {
  public:
    explicit ActiveCalls(RankContext& context);
    ActiveCalls(const ActiveCalls&) = delete;
    ActiveCalls& operator=(const ActiveCalls&) = delete;

    // ---- The active call. After begin() refused it, no call is active; after it failed, the call stays active.
    Begun begin(const Call& call) {
        if (call.copied) [[unlikely]]
            return begin_copied(call);
        const auto* collective = std::get_if<CollectiveCall>(&call.kind);
        if (call.space == Space::host && collective) [[likely]]
            return start(host_, call, *collective);
        return begin_other(call);
    }
    // Calls on device memory, which CoalescedCalls has accepted, in one kernel. If it is refused, no call has begun.
    Begun begin_coalesced(std::span<const Call> calls);
    Progress advance() {  // done, moved, blocked or failed
        HostCollectives* const* const host = std::get_if<HostCollectives*>(&active_);
        if (!host) [[unlikely]]
            return advance_other();
        const Progress progress = (*host)->advance();
        if (progress == Progress::failed) [[unlikely]]
            failure_ = (*host)->take_failure();
        return progress;
    }
    // After done. A failure is fatal.
    Status end() {
        active_ = {};
        context_.row().position.finish(context_.sequence);
        if (copying_.call) [[unlikely]]
            return end_copied();
        return ok();
    }

    // ---- Messages beside it. They are done when advance_messages() says so.
    Begun begin_messages(std::span<const Call> messages);
    Progress advance_messages();
    // True: the message is done, without having been in progress. The communicator is usable.
    bool moved_at_once(const Call& call);
    const PointToPoint& messages() const { return messages_; }

    // ---- Both.
    bool idle() const { return in_nothing() && messages_.idle(); }
    // While blocked: spins, yields or sleeps, and sometimes looks for failures. A failure is fatal.
    Status pause(bool may_sleep);
    // After begin() refused or failed, or advance() or advance_messages() failed.
    Status take_failure() { return std::move(failure_); }
    // After advance() or advance_messages() failed, when the communicator is dead: the engine forgets its work.
    void abandon_call();
    void abandon_messages() { messages_.abandon(); }
    // After a failure: afterwards no network writes to the buffers of calls and messages.
    void withdraw() {
        host_.withdraw();
        uneven_.withdraw();
        messages_.withdraw();
    }
    // The cause of a broken connection, if this rank can see it now.
    Status cause();
    // After a failure: whether `peer` may still use the buffers of the call or of the messages.
    bool may_be_using(int peer) const;
    // Whether the active call is a collective on host memory, and so waits for the same call of other ranks.
    bool in_collective() const { return in<HostCollectives>() || in<UnevenCollectives>() || in<CopyEngineCalls>(); }
    // Needs in_collective().
    bool waits_for(int peer) const { return blocked().missing->contains(peer); }
    Windows& windows() { return windows_; }
    const Windows& windows() const { return windows_; }
    uint64_t heap_bytes() const { return host_.heap_bytes() + uneven_.heap_bytes(); }

  private:
    struct Idle {};
    bool in_nothing() const { return std::holds_alternative<Idle>(active_); }
    template <class Engine>
    bool in() const {
        return std::holds_alternative<Engine*>(active_);
    }
    template <class Engine, class... Arguments>
    Begun start(Engine& engine, const Arguments&... arguments) {
        active_ = &engine;
        const Begun begun = engine.begin(arguments...);
        if (begun != Begun::yes) [[unlikely]]
            not_begun(begun, engine.take_failure());
        return begun;
    }
    void not_begun(Begun begun, Status reason);
    Begun begin_other(const Call& call);
    Begun begin_copied(const Call& call);
    Progress advance_other();
    Status end_copied();
    Blocked blocked() const;

    RankContext& context_;
    HostCollectives host_;
    UnevenCollectives uneven_;
    Windows windows_;
    OneSidedCalls one_sided_;
    KernelCalls gpu_;
    CopyEngineCalls copies_;
    StagedCalls staged_;
    PointToPoint messages_;
    std::variant<Idle, HostCollectives*, UnevenCollectives*, OneSidedCalls*, KernelCalls*, CopyEngineCalls*> active_;
    struct Copying {
        bool call = false, messages = false;
    } copying_;  // they work on copies of device memory
    Status failure_;
    RankSet waited_for_;  // of the call and of the messages
    const RankSet nobody_ = {};
    Waiting::AddWakeups add_wakeups_;
};

}  // namespace weft::internal
