// communicator.hpp: one rank's membership in a group of ranks: its identity, its life and its calls.
// The caller begins a call, advances it until it is done and ends it. advance() never blocks, so one thread can drive
// several ranks.
// Thread-bound, except abort(), aborted_here() and state().
#pragma once
#include <atomic>
#include <memory>
#include <span>

#include "src/comm/active_calls.hpp"
#include "src/comm/call_inputs.hpp"
#include "src/comm/returned_errors.hpp"

namespace weft::internal {

class Communicator {
  public:
    // All ranks have joined `group`, and their devices have connected. `membership` is null if all ranks are on one
    // host.
    // `device` is null if the process uses no CUDA.
    static Result<std::unique_ptr<Communicator>> make(std::shared_ptr<Segment> group,
                                                      std::shared_ptr<Membership> membership,
                                                      std::unique_ptr<GpuEngine> device, int rank,
                                                      CommunicatorOptions options);
    ~Communicator();

    int rank() const { return context_.rank; }
    int ranks() const { return context_.ranks(); }
    RankContext& context() { return context_; }
    CallInputs& inputs() { return inputs_; }
    ActiveCalls& calls() { return calls_; }

    // ---- A call. The API has checked its arguments and CallPlacement has placed it.
    // After a refusal the communicator goes on. After any other failure the abort flag is set for all ranks, and the
    // communicator is dead.
    Status begin(const Call& call) {
        WEFT_TRY(usable());
        const Begun begun = calls_.begin(call);
        if (begun == Begun::yes) [[likely]]
            return ok();
        return not_begun(begun);
    }
    // Calls on device memory, which CoalescedCalls has accepted, in one kernel. If it is refused, no call has begun.
    Status begin_coalesced(std::span<const Call> calls);
    Progress advance() {  // done, moved, blocked or failed
        const Progress progress = calls_.advance();
        if (progress == Progress::failed) [[unlikely]]
            call_failed();
        return progress;
    }
    // While blocked: spins, yields or sleeps, and sometimes looks for failures. Also waits for messages.
    Status pause(bool may_sleep);
    // After advance() or advance_messages() returned failed.
    Status take_failure() { return std::move(failure_); }
    Status end() {
        Status ended = calls_.end();
        return ended ? std::move(ended) : die(std::move(ended));
    }
    // ---- Point-to-point messages, any number at a time, beside a call.
    // Messages on device memory are done for this class when one kernel for them has been enqueued.
    Status begin_messages(std::span<const Call> messages);
    Progress advance_messages();

    // ---- Life.
    // Ok if a call can begin, otherwise the reason.
    Status usable();
    // Fatal: sets the abort flag for all ranks. Returns the failure that all ranks report.
    Status die(Status failure);
    // Aborts the calls in progress on all ranks. The communicator is dead.
    void stop(const std::string& why);
    // For an exception that leaves the call: sets the abort flag, so that no rank waits for this one.
    void break_off() noexcept;
    // After a failure, before the caller gets its buffers back: waits until no peer uses them.
    void await_borrowers();
    // Waits for this communicator's calls on device memory. No call may follow.
    Status finalize();
    bool dead() const { return dead_; }

    // ---- Thread-safe.
    Status state() const;
    void abort();
    bool aborted_here() const { return aborted_here_.load(std::memory_order_acquire); }

  private:
    Communicator(std::shared_ptr<Segment> group, std::shared_ptr<Membership> membership,
                 std::unique_ptr<GpuEngine> device, int rank, const CommunicatorOptions& options,
                 std::unique_ptr<FlagBlock> flag_block);
    Status not_begun(Begun begun);
    void call_failed();
    void leave_buffers();
    void abandon_windows();

    RankContext context_;
    std::unique_ptr<ReturnedErrorScope> returned_errors_;  // until the rank leaves
    CallInputs inputs_;
    ActiveCalls calls_;
    Status failure_;
    bool finalized_ = false;
    bool dead_ = false;
    std::atomic<bool> aborted_here_{false};
};

}  // namespace weft::internal
