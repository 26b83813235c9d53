// communicator.hpp: one rank's membership in a group of ranks: its memory, plans and calls.
// The caller begins a call, advances it until it is done and ends it. advance() never blocks, so one thread can drive
// several ranks.
// Thread-bound, except abort() and the observers.
#pragma once
#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "src/base/clock.hpp"
#include "src/comm/returned_errors.hpp"
#include "src/control/watchdog.hpp"
#include "src/gpu/engine/gpu_engine.hpp"
#include "src/kernels/user_reduction.hpp"
#include "src/p2p/messages.hpp"
#include "src/p2p/partial_results.hpp"
#include "src/planning/plan_cache.hpp"
#include "src/rendezvous/host_rendezvous.hpp"
#include "src/rma/window.hpp"
#include "src/segment/arena.hpp"
#include "src/segment/waiting.hpp"

namespace weft::internal {

struct CommunicatorOptions {
    std::string name;
    bool blocking = true;
    bool slots_later = false;  // no slot memory before a call needs it: there may be none, or short ones
    int64_t timeout_ms = 0;    // 0: never
    int64_t init_timeout_ms = 0;
    int64_t warn_ms = 0;
    int64_t sleep_us = 0;
    int64_t streaming_bytes = -1;
    const CpuKernels* cpu_kernels = nullptr;
    std::shared_ptr<const Catalog> catalog;
    std::shared_ptr<const Machines> machines;  // of the communicator's ranks
    std::shared_ptr<const Tuning> tuning;      // rank 0's; null: only the built-in costs
};

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

    int rank() const { return rank_; }
    int ranks() const { return segment_->ranks(); }
    const CommunicatorOptions& options() const { return options_; }
    const std::shared_ptr<Segment>& segment() const { return segment_; }
    const Membership* membership() const { return membership_.get(); }  // null: one host
    const GpuEngine* device() const { return device_.get(); }           // null: the process uses no CUDA

    // ---- Settings of later calls, beside their arguments. As weftCommSetCallConfig.
    Status set_call_settings(int64_t timeout_ms, const char* algo, int channels, int priority);
    // Whether the planner knows these settings already. If so, they may be set while streams drive the communicator.
    bool knows_settings(const char* algo, int channels) const {
        return (!algo && channels < 0) || planner_.knows(algo_or_agreed(algo), channels_or_agreed(channels));
    }
    const CallSettings& call_settings() const { return call_settings_; }
    // Which of two deadlines comes first. The values are as in CallSettings.
    int64_t earlier(int64_t one, int64_t other) const;

    // ---- A call. The API has checked the arguments.
    struct Call {
        Operation operation;  // without choice
        const void* send;
        void* receive;
        const void* operand;  // of a user's reduction: see Run::start()
        int made;             // the reduction's number
        bool operand_on_device;
        void* stream;
        const char* only_buffer;          // the user's name of the only buffer; null: sendbuff and recvbuff
        bool queued;                      // the stream is a weftHostStream_t
        bool mapped;                      // see BufferPlacement
        bool copied;                      // device memory, and the host works on copies of it (staged_calls.cpp)
        const PeerBuffers* peer_buffers;  // null: the call has none; the caller keeps them until the call is done
        const Access* access;             // likewise, of a one-sided call to memory of rank operation.root
        Exchange::Caller by;              // of a point-to-point message to or from rank operation.root
        CallSettings settings;

        bool is_message() const {
            return operation.collective == Collective::send || operation.collective == Collective::receive;
        }
    };
    // Finds where the buffers of a checked call are, and sets Operation::space, `mapped` and `queued`; fails if the
    // call cannot be served.
    // Also while streams drive the communicator. After weftUnhandledCudaError the caller calls die_of().
    Status place(Call& call);
    // The same for counts that a kernel will read. Also finds how many elements the buffers can hold.
    Status place_counts(const Call& call, CountsOnDevice& counts);
    Status die_of(Status failure) { return die(std::move(failure)); }
    // Whether `other` is another rank of the same communicator. Whether this rank's call waits for a call that `other`
    // has not made.
    bool is_beside(const Communicator& other) const;
    bool waits_for_call_of(const Communicator& other) const;
    // "rank 0 waits in operation 1, all_reduce of 1 int32, sum". Only during a call.
    std::string text_of_wait() const;
    Status begin(const Call& call);
    // Begins calls on device memory, which CoalescedCalls has accepted, in one kernel. If this is refused, no call has
    // begun.
    bool joins_on_device() const { return device_ && device_->collectives().joins(); }
    Status begin_coalesced_on_device(std::span<const Call> calls);
    // Returns done, moved, blocked or failed. After a failure the abort flag is set for all ranks, and the communicator
    // is dead.
    Progress advance();
    // While blocked: spins, yields or sleeps, and sometimes polls for failures. A failure as above.
    Status pause(bool may_sleep);
    Status end() {
        on_device_ = uneven_ = in_call_ = in_access_ = false;
        segment_->row(rank_).position.finish(sequence_);
        if (copying_) [[unlikely]]
            return end_copied();
        return ok();
    }
    // ---- Communicators made of this one (splitting.hpp).
    // Ok if a call can begin, otherwise the reason.
    Status usable();
    // Begins a call that gathers `bytes` (a multiple of 8) of each rank in rank order, in place in `all`.
    // Then advance() as usual, and end_split() instead of end(). The call fails after `timeout_ms` without progress (0:
    // never).
    Status begin_split(void* all, size_t bytes, int64_t timeout_ms);
    Status end_split();
    // Numbers that identify a child; all ranks that take part compute the same number.
    // A rank knows a shrink only if it is in the child, so shrinks are counted per list of `excluded` ranks.
    // Only successful shrinks count: one rank may have tried more often than another.
    uint64_t next_split(int color) { return ++splits_ << 32 | uint32_t(color); }
    uint64_t next_shrink(const std::vector<int>& excluded) const;
    void count_shrink(const std::vector<int>& excluded) { ++shrinks_[excluded]; }
    // Aborts the calls in progress on all ranks. The communicator is dead.
    void stop(const std::string& why);
    // Waits for this communicator's calls on device memory.
    void flush() const;
    // The same, and no call may follow.
    Status finalize();
    // begin, advance and pause until done, end.
    Status run(const Call& call);

    // ---- Point-to-point messages (point_to_point.cpp), any number at a time, beside a collective call.
    // They have no sequence number, because only two ranks take part in each. pause() waits for them, too.
    // Messages on device memory are done for this class when one kernel for them has been enqueued.
    Status begin_messages(std::span<const Call> messages);
    Progress advance_messages();
    bool has_messages() const { return messages_ && !messages_->exchange().idle(); }
    Status run_messages(std::span<const Call> messages);
    // After a failure: the messages in host memory that were not done (see Exchange).
    // And whether pause() failed because of the messages, not because of the call.
    std::vector<size_t> unfinished_messages() const {
        return messages_ ? messages_->exchange().unfinished() : std::vector<size_t>();
    }
    bool messages_in_trouble() const { return messages_in_trouble_; }
    // For an exception that leaves the call: sets the abort flag, so that no rank waits for this one.
    void break_off() noexcept;
    // After a failure, before the caller gets its buffers back: waits until no peer uses them.
    void await_borrowers();
    // After advance() returned failed.
    Status take_failure() { return std::move(failure_); }

    // ---- Calls that an open group collects. Ranks that wait for this rank report them.
    void hold_call() {
        RankRow& row = segment_->row(rank_);
        if (held_calls_ == 0) row.held_us.store(coarse_now_us(), std::memory_order_relaxed);
        row.held_calls.store(++held_calls_, std::memory_order_relaxed);
    }
    void release_calls() {
        if (std::exchange(held_calls_, 0) != 0) segment_->row(rank_).held_calls.store(0, std::memory_order_relaxed);
    }

    // ---- The user's reductions.
    struct MadeReduction {
        weftDataType_t type;
        uint8_t op;  // as Operation has it
        alignas(8) std::byte scalar[8] = {};
        UserReduction by = {};
        const void* on_device = nullptr;  // the scalar's device address; calls read it when they run
        const void* operand() const {
            if (on_device) return on_device;
            return by.function ? static_cast<const void*>(&by) : scalar;
        }
    };
    int make_reduction(const MadeReduction& reduction);
    // Whether this thread runs a user's reduction function, and so is inside a call.
    bool in_function_here() const { return in_function_of(&segment_->row(rank_).in_function_us); }
    Status check_device_scalar(const void* scalar, size_t bytes);
    bool drop_reduction(int op) { return reductions_.erase(op) > 0; }
    const MadeReduction* reduction(int op) const {
        const auto place = reductions_.find(op);
        return place == reductions_.end() ? nullptr : place->second.get();
    }
    // For calls that may run after the reduction was dropped.
    std::shared_ptr<const MadeReduction> share_reduction(int op) const { return reductions_.at(op); }

    // ---- Buffers that the user has registered. Buffers in host memory are only recorded: an address tells whether
    // peers can map it.
    void* register_buffer(void* address, size_t bytes);
    Status deregister_buffer(const void* handle);

    // ---- Windows (windows.cpp). All ranks take part in registering and closing one (window_registration.hpp).
    // Gives our window `number`, the next number on all ranks. Returns our entry for the other ranks, also if the
    // window is unfit.
    Result<WindowPart> open_window(uint32_t number, weftWindow& window);
    // When all ranks have exchanged their entries; a window in host memory is then complete.
    // In device memory: exports our part, then finds the peers' parts for our kernels. A failure of these is this
    // rank's own.
    void complete_window(uint32_t number, std::span<const WindowPart> parts);
    Status open_device_window(uint32_t number, const weftWindow& window, WindowPart& part);
    Result<bool> reach_window(uint32_t number, std::span<const WindowPart> parts) {
        return device_->windows().reach(number, parts);
    }
    void complete_device_window(uint32_t number);
    // After this, window_closed() returns true when no peer maps our part any more.
    void begin_to_close_window(uint32_t number);
    bool window_closed(uint32_t number) { return !device_ || device_->windows().closed(number); }
    bool device_idle() const { return device_->idle(); }
    // While a stage of a window waits for this or other devices. `since_us`: the begin of the wait; 0: no deadline.
    Status pause_for_device(uint32_t number, int64_t since_us);
    // Closes a window of a dead communicator, or one whose registration failed. Waits two seconds at most.
    void give_up_window(uint32_t number);
    // Whether a blocking collective on host memory has cancellation points only where the code takes CancelHeld itself.
    bool quick() const { return !device_ && !has_windows() && segment_->one_host(); }
    bool has_windows() const { return host_windows_.load(std::memory_order_relaxed) > 0; }
    // Serves requests of other ranks to this rank's windows, between its calls. True: something moved.
    bool serve() { return one_sided_->serve(); }
    uint32_t next_window() const { return windows_ + 1; }
    void count_window() { ++windows_; }
    // Begins a call that gathers one entry from each rank, as begin_split() does. Advance until done, then end().
    Status begin_telling(uint8_t op, void* all, size_t bytes);
    // Begins a call that ends when all requests of this rank to other ranks are done.
    Status begin_flush();
    // Waits until no rank of this host reads or writes our windows in place. The ranks see the abort flag or our state
    // and stop.
    // Two seconds at most.
    void await_untouched();

    // ---- Observers and abort, thread-safe.
    std::string explain(const Operation& operation) const {
        return planner_.explain(operation, call_settings_.preference) +
               (device_ ? device_->explain(operation, call_settings_.preference) : "");
    }
    Status state() const;
    bool dead() const { return dead_; }            // thread-bound
    bool finalized() const { return finalized_; }  // likewise
    void abort();
    bool aborted_here() const { return aborted_here_.load(std::memory_order_acquire); }
    // The largest call of a group that is coalesced with others.
    size_t join_bytes() const { return size_t(planner_.agreed().join_bytes); }
    // A buffer for coalesced calls: memory that peers can map, if there is room. It must not be in use.
    std::span<std::byte> coalescing_buffer(size_t bytes);
    uint64_t flag_block_bytes() const;
    uint64_t connection_bytes() const { return planner_.connection_bytes(); }
    uint64_t heap_bytes() const {
        return plans_.heap_bytes() + planner_.scratch_bytes() + tokens_.size() + coalesced_.bytes() +
               coalesced_heap_.size() + partial_results_.heap_bytes() + (device_ ? device_->staging().bytes() : 0);
    }
    uint64_t device_bytes() const { return device_ ? device_->device_bytes() : 0; }

  private:
    Communicator(std::shared_ptr<Segment> group, std::shared_ptr<Membership> membership,
                 std::unique_ptr<GpuEngine> device, int rank, const CommunicatorOptions& options,
                 std::unique_ptr<FlagBlock> flag_block);
    std::string algo_or_agreed(const char* algo) const { return algo ? algo : planner_.agreed().algo; }
    int channels_or_agreed(int channels) const { return channels >= 0 ? channels : int(planner_.agreed().channels); }
    Status place_barrier_on_device(Call& call);
    Status begin_on_device();
    Status begin_copied(const Call& call);
    Status copy_in(Call& on_host);
    Status read_counts(const Call& call, PeerBuffers& peer_buffers);
    Status end_copied();
    Status begin_copied_messages(std::vector<Call>& messages);
    Progress end_copied_messages();
    Status refuse_or_die(Status failure);
    // Begins, advances and waits until done, ends. On every exit the buffers belong to the user again.
    template <class Begin, class Advance, class End>
    Status see_through(Begin&& begin, Advance&& advance, End&& end);
    struct Limit {
        static constexpr const char* of_call = "timeoutMs of the call's config";
        int64_t timeout_ms = -1;  // negative: the communicator's
        const char* set_by = of_call;
    };
    void watch(const Limit& limit);
    void leave_buffers();
    Status die(Status failure);
    Status prepare();
    // True: the message is done. Most small messages between running ranks need none of the waiting machinery.
    bool moved_at_once(const Call& call);
    Status begin_message(const Call& call);
    Status begin_device_messages(std::span<const Call> messages);
    Status begin_uneven_on_device();
    Status launch_uneven(Status prepared);
    Status launch_parts();
    Status begin_uneven();
    Progress advance_uneven();
    Progress advance(Exchange& exchange);
    Status pause_for_messages(bool may_sleep);
    PeerLinks::Settings link_settings(uint64_t name);
    Status begin_access();
    Status begin_access_on_device();
    Result<OneSidedCall> one_sided_call() const;
    Progress advance_access();
    Status pause_for_access(bool may_sleep);
    Messages& messages(std::unique_ptr<Messages>& which, uint64_t name);
    const RankSet& missing() const;
    Status cause();
    bool may_be_using(int peer) const;
    Position::Report position() const { return *segment_->row(rank_).position.read(); }  // never torn: our own row

    std::shared_ptr<Segment> segment_;
    std::shared_ptr<Membership> membership_;
    int rank_;
    std::unique_ptr<ReturnedErrorScope> returned_errors_;  // until the rank leaves
    std::unique_ptr<GpuEngine> device_;
    std::unique_ptr<FlagBlock> flag_block_;
    Planner planner_;
    PlanCache plans_;
    Waiting waiting_;
    Waiting::AddDescriptors add_descriptors_;
    Watchdog watchdog_;
    CommunicatorOptions options_;
    CallSettings call_settings_;
    Limit call_limit_, message_limit_;  // of the call; of the messages beside it: the earliest
    bool finalized_ = false;
    uint64_t splits_ = 0;                           // number so far; below 2^31
    std::map<std::vector<int>, uint64_t> shrinks_;  // likewise, by the excluded ranks

    uint64_t sequence_ = 0;
    Call call_{};
    bool in_call_ = false;
    bool on_device_ = false;                           // the call was enqueued on the device: it is done here
    bool uneven_ = false;                              // the call consists of messages
    bool copying_ = false, copying_messages_ = false;  // works on copies of device memory; so do messages
    PeerBuffers copied_peer_buffers_;                  // of the call, on the host
    PreparedPlan* prepared_ = nullptr;                 // of the call; null while connections are made
    Choice choice_;
    Binding* binding_ = nullptr;  // of choice_, while it connects
    RankSet missing_binding_;
    std::unique_ptr<Messages> messages_;          // point-to-point messages; null until the first
    std::unique_ptr<Messages> parts_;             // messages of collectives, in the order of the calls; likewise
    std::vector<DeviceMessage> device_messages_;  // while they are being enqueued
    PartialResults partial_results_;
    bool messages_in_trouble_ = false;
    bool in_access_ = false;                                // the call is one-sided
    std::unique_ptr<PeerLinks> window_links_;               // null until there is a window
    std::unique_ptr<OneSided> one_sided_;                   // likewise
    uint32_t windows_ = 0;                                  // so far
    std::atomic<int> host_windows_{0}, device_windows_{0};  // number of windows, by memory space
    RankSet waited_for_;
    Status failure_;
    bool dead_ = false;
    std::atomic<bool> aborted_here_{false};

    std::vector<std::byte> tokens_;          // the data that a barrier gathers
    ArenaMemory coalesced_;                  // buffer for coalesced calls of a group
    std::vector<std::byte> coalesced_heap_;  // the same where the arena has no room
    std::map<int, std::shared_ptr<const MadeReduction>> reductions_;
    int next_reduction_ = weftNumOps;
    uint32_t held_calls_ = 0;
    std::list<int> registered_;  // the entry of a buffer in device memory, else GpuBuffers::no_entry
};

template <class Begin, class Advance, class End>
Status Communicator::see_through(Begin&& begin, Advance&& advance, End&& end) try {
    WEFT_TRY(begin());
    for (;;) {
        const Progress progress = advance();
        if (progress == Progress::done) [[likely]]
            return end();
        Status failure;
        if (progress == Progress::failed) failure = take_failure();
        if (progress == Progress::blocked) failure = pause(true);
        if (!failure) [[unlikely]] {
            await_borrowers();
            return failure;
        }
    }
} catch (...) {
    break_off();
    await_borrowers();
    throw;
}

}  // namespace weft::internal
