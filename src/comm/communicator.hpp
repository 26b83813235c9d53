// communicator.hpp: one rank's membership in a group: its memory, plans and calls. A call is begun, advanced until it
// is done and ended; advance() never blocks, so one thread can drive several ranks. Thread-bound, but for abort() and
// the observers.
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
    bool slots_later = false;  // its slots take no memory before a call wants it: it may have none, or short ones
    int64_t timeout_ms = 0;    // 0: never
    int64_t init_timeout_ms = 0;
    int64_t warn_ms = 0;
    int64_t sleep_us = 0;
    int64_t streaming_bytes = -1;
    const CpuKernels* cpu_kernels = nullptr;
    std::shared_ptr<const Catalog> catalog;
    std::shared_ptr<const Machines> machines;  // of its ranks
    std::shared_ptr<const Tuning> tuning;      // rank 0's; null: the built-in costs alone
};

class Communicator {
  public:
    // All ranks have coalesced `group`, and their devices each other. `membership`: null if they are on one host.
    // `device`: null if the process uses no CUDA.
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
    const GpuEngine* device() const { return device_.get(); }           // null: the process used no CUDA

    // ---- What calls that are made from now on ask for beside their arguments. As weftCommSetCallConfig.
    Status set_call_settings(int64_t timeout_ms, const char* algo, int channels, int priority);
    // Whether that is known already, so that it may be set while streams drive the communicator.
    bool knows_settings(const char* algo, int channels) const {
        return (!algo && channels < 0) || planner_.knows(algo_or_agreed(algo), channels_or_agreed(channels));
    }
    const CallSettings& call_settings() const { return call_settings_; }
    // Which of two deadlines, as CallSettings has them, comes first.
    int64_t earlier(int64_t one, int64_t other) const;

    // ---- A call. Arguments have been checked by the API.
    struct Call {
        Operation operation;  // without choice
        const void* send;
        void* receive;
        const void* operand;  // of a reduction that was made: see Run::start()
        int made;             // its number
        bool operand_on_device;
        void* stream;
        const char* only_buffer;          // what the user calls it, if there is one; null: sendbuff and recvbuff
        bool queued;                      // the stream is a weftHostStream_t
        bool mapped;                      // see BufferPlacement
        bool copied;                      // in device memory, of which the host works on copies (staged_calls.cpp)
        const PeerBuffers* peer_buffers;  // of one that has them; the caller's until the call is done
        const Access* access;             // likewise, of one that is one-sided, with memory of rank operation.root
        Exchange::Caller by;              // of a message by itself, to or from rank operation.root
        CallSettings settings;

        bool is_message() const {
            return operation.collective == Collective::send || operation.collective == Collective::receive;
        }
    };
    // Where the buffers of a call are that has been checked otherwise, or why it cannot be served; Operation::space,
    // `mapped` and `queued`. While streams drive the communicator too; after weftUnhandledCudaError die_of().
    Status place(Call& call);
    // The same of counts that a kernel will read, and how much room the buffers have.
    Status place_counts(const Call& call, CountsOnDevice& counts);
    Status die_of(Status failure) { return die(std::move(failure)); }
    // Whether the other is another rank of the same communicator; and whether this one waits, in a call, for what the
    // other has not called.
    bool is_beside(const Communicator& other) const;
    bool waits_for_call_of(const Communicator& other) const;
    // "rank 0 waits in operation 1, all_reduce of 1 int32, sum": while it is in one.
    std::string text_of_wait() const;
    Status begin(const Call& call);
    // Of calls on device memory that CoalescedCalls has found fit, in one kernel; a refusal leaves nothing begun.
    bool joins_on_device() const { return device_ && device_->joins(); }
    Status begin_coalesced_on_device(std::span<const Call> calls);
    // done, moved or blocked; a failure has been told to all ranks, and the communicator is dead.
    Progress advance();
    // While blocked: spins, yields or sleeps, and now and then looks for trouble. A failure as above.
    Status pause(bool may_sleep);
    Status end() {
        on_device_ = uneven_ = in_call_ = in_access_ = false;
        segment_->row(rank_).position.finish(sequence_);
        if (copying_) [[unlikely]]
            return end_copied();
        return ok();
    }
    // ---- Communicators made of this one (splitting.hpp).
    // Why no call can begin any more; ok if one can.
    Status usable();
    // A call that gathers `bytes`, a multiple of 8, of each rank in the order of ranks; `all`: all of them, with ours
    // in place. Then advance() and so on; it fails after `timeout_ms` without progress (0: never). end_split() instead
    // of end().
    Status begin_split(void* all, size_t bytes, int64_t timeout_ms);
    Status end_split();
    // Tells a child from others, alike on all ranks that take part: of a split, and of a communicator without
    // `excluded`, which only those know of that are in it. Of shrinks those that came to something count: a rank may
    // have tried once more than another.
    uint64_t next_split(int color) { return ++splits_ << 32 | uint32_t(color); }
    uint64_t next_shrink(const std::vector<int>& excluded) const;
    void count_shrink(const std::vector<int>& excluded) { ++shrinks_[excluded]; }
    // Ends what is in progress on all ranks; the communicator is dead.
    void stop(const std::string& why);
    // Waits for calls on device memory.
    void flush() const;
    // The same, and none may follow.
    Status finalize();
    // begin, advance and pause until done, end.
    Status run(const Call& call);

    // ---- Messages by themselves (point_to_point.cpp), any number at a time, beside a call. They are not numbered:
    // only two ranks take part in each. pause() waits for them too.
    // Those on device memory are done here when they are enqueued, in one kernel.
    Status begin_messages(std::span<const Call> messages);
    Progress advance_messages();
    bool has_messages() const { return messages_ && !messages_->exchange().idle(); }
    Status run_messages(std::span<const Call> messages);
    // After a failure: which of those in host memory were not done, see Exchange; and whether it was they for which
    // pause() failed, not the call.
    std::vector<size_t> unfinished_messages() const {
        return messages_ ? messages_->exchange().unfinished() : std::vector<size_t>();
    }
    bool messages_in_trouble() const { return messages_in_trouble_; }
    // An exception leaves the call: nobody shall wait for a rank that does not go on.
    void break_off() noexcept;
    // After a failure, before the caller gets its buffers back: until no peer uses them any more.
    void await_borrowers();
    // After advance() said failed.
    Status take_failure() { return std::move(failure_); }

    // ---- Calls that an open group collects, as whoever waits for this rank is told.
    void hold_call() {
        RankRow& row = segment_->row(rank_);
        if (held_calls_ == 0) row.held_us.store(coarse_now_us(), std::memory_order_relaxed);
        row.held_calls.store(++held_calls_, std::memory_order_relaxed);
    }
    void release_calls() {
        if (std::exchange(held_calls_, 0) != 0) segment_->row(rank_).held_calls.store(0, std::memory_order_relaxed);
    }

    // ---- Reductions that the user has made.
    struct MadeReduction {
        weftDataType_t type;
        uint8_t op;  // as Operation has it
        alignas(8) std::byte scalar[8] = {};
        UserReduction by = {};
        const void* on_device = nullptr;  // where the scalar lies that calls read when they run
        const void* operand() const {
            if (on_device) return on_device;
            return by.function ? static_cast<const void*>(&by) : scalar;
        }
    };
    int make_reduction(const MadeReduction& reduction);
    // Whether this thread is in the function of one, and so inside.
    bool in_function_here() const { return in_function_of(&segment_->row(rank_).in_function_us); }
    Status check_device_scalar(const void* scalar, size_t bytes);
    bool drop_reduction(int op) { return reductions_.erase(op) > 0; }
    const MadeReduction* reduction(int op) const {
        const auto place = reductions_.find(op);
        return place == reductions_.end() ? nullptr : place->second.get();
    }
    // For calls that may run when it was dropped.
    std::shared_ptr<const MadeReduction> share_reduction(int op) const { return reductions_.at(op); }

    // ---- Buffers that the user has declared. Those in host memory are only remembered: what peers can reach is known
    // by address.
    void* register_buffer(void* address, size_t bytes);
    Status deregister_buffer(const void* handle);

    // ---- Windows (windows.cpp): registered and ended as calls that all ranks take part in (window_registration.hpp).
    // Ours has `number` from now on, which is the next one on all ranks; what the others are to be told, also if it is
    // unfit.
    Result<WindowPart> open_window(uint32_t number, weftWindow& window);
    // When all have told, in host memory complete. Of device memory: ours may be mapped by others, who are to be told
    // where; then, whether it is known where our kernels find theirs; a failure of these is this rank's own.
    void complete_window(uint32_t number, std::span<const WindowPart> parts);
    Status open_device_window(uint32_t number, const weftWindow& window, WindowPart& part);
    Result<bool> reach_window(uint32_t number, std::span<const WindowPart> parts) {
        return device_->reach_window(number, parts);
    }
    void complete_device_window(uint32_t number);
    // True when nobody maps our part any more.
    void begin_to_close_window(uint32_t number);
    bool window_closed(uint32_t number) { return !device_ || device_->window_closed(number); }
    bool device_idle() const { return device_->idle(); }
    // While a stage of a window's waits for the device or for others' devices: since `since_us`; 0: as long as it takes.
    Status pause_for_device(uint32_t number, int64_t since_us);
    // Of a communicator that is dead, or a window that was not to be made: closes it, and waits two seconds at most.
    void give_up_window(uint32_t number);
    // Whether a blocking collective on host memory has cancellation points only where it takes CancelHeld itself.
    bool quick() const { return !device_ && !has_windows() && segment_->one_host(); }
    bool has_windows() const { return host_windows_.load(std::memory_order_relaxed) > 0; }
    // What others ask of this rank's windows, between its calls. True: something moved.
    bool serve() { return one_sided_->serve(); }
    uint32_t next_window() const { return windows_ + 1; }
    void count_window() { ++windows_; }
    // A call that gathers what each rank tells, as begin_split() does; until done, then end().
    Status begin_telling(uint8_t op, void* all, size_t bytes);
    // Likewise one that ends when all that others were asked for is done.
    Status begin_flush();
    // Until no rank of this host is reading or writing our windows in place; they have seen that they must not, by the
    // abort word or our state. Two seconds at most.
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
    // Up to which small calls of a group are coalesced.
    size_t join_bytes() const { return size_t(planner_.agreed().join_bytes); }
    // Which lies where peers read it in place, if there is room; none is in use.
    std::span<std::byte> coalescing_buffer(size_t bytes);
    uint64_t flag_block_bytes() const;
    uint64_t connection_bytes() const { return planner_.connection_bytes(); }
    uint64_t heap_bytes() const {
        return plans_.heap_bytes() + planner_.scratch_bytes() + tokens_.size() + coalesced_.bytes() +
               coalesced_heap_.size() + partial_results_.heap_bytes() + (device_ ? device_->copied_bytes() : 0);
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
    // `begin`, `advance` and waits until it is done, `end`. Whatever ends it, buffers are the user's again.
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
    // True: it is done. Most small messages between ranks that run need nothing of what waiting needs.
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
    Position::Report position() const { return *segment_->row(rank_).position.read(); }  // our own line is never torn

    std::shared_ptr<Segment> segment_;
    std::shared_ptr<Membership> membership_;
    int rank_;
    std::unique_ptr<ReturnedErrorScope> returned_errors_;  // until it leaves
    std::unique_ptr<GpuEngine> device_;
    std::unique_ptr<FlagBlock> flag_block_;
    Planner planner_;
    PlanCache plans_;
    Waiting waiting_;
    Waiting::AddDescriptors add_descriptors_;
    Watchdog watchdog_;
    CommunicatorOptions options_;
    CallSettings call_settings_;
    Limit call_limit_, message_limit_;  // of the call, and of the messages beside it, the earliest
    bool finalized_ = false;
    uint64_t splits_ = 0;                           // so far; below 2^31
    std::map<std::vector<int>, uint64_t> shrinks_;  // likewise, by whom they excluded

    uint64_t sequence_ = 0;
    Call call_{};
    bool in_call_ = false;
    bool on_device_ = false;                           // the call has been given to the device: it is done here
    bool uneven_ = false;                              // the call is made of messages
    bool copying_ = false, copying_messages_ = false;  // it works on copies of device memory; the messages beside it do
    PeerBuffers copied_peer_buffers_;                  // of the call, on the host
    PreparedPlan* prepared_ = nullptr;                 // of the call; null while connections are being made
    Choice choice_;
    Binding* binding_ = nullptr;  // of choice_, being connected
    RankSet missing_binding_;
    std::unique_ptr<Messages> messages_;          // those by themselves; null until there are some
    std::unique_ptr<Messages> parts_;             // those of collectives, whose order is that of the calls; likewise
    std::vector<DeviceMessage> device_messages_;  // while they are being enqueued
    PartialResults partial_results_;
    bool messages_in_trouble_ = false;
    bool in_access_ = false;                                // the call is one-sided
    std::unique_ptr<PeerLinks> window_links_;               // null until there is a window
    std::unique_ptr<OneSided> one_sided_;                   // likewise
    uint32_t windows_ = 0;                                  // so far
    std::atomic<int> host_windows_{0}, device_windows_{0};  // of these, by the memory that they are
    RankSet waited_for_;
    Status failure_;
    bool dead_ = false;
    std::atomic<bool> aborted_here_{false};

    std::vector<std::byte> tokens_;          // what a barrier gathers
    ArenaMemory coalesced_;                  // what is coalesced of a group's calls
    std::vector<std::byte> coalesced_heap_;  // the same where the arena has no room
    std::map<int, std::shared_ptr<const MadeReduction>> reductions_;
    int next_reduction_ = weftNumOps;
    uint32_t held_calls_ = 0;
    std::list<int> registered_;  // of device memory the entry, else GpuEngine::no_entry
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
