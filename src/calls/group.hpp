// group.hpp: calls collected between weftGroupStart and weftGroupEnd on one thread.
// Thread-local.
#pragma once
#include <atomic>
#include <vector>

#include "src/calls/dispatch.hpp"

namespace weft::internal {

class Group {
  public:
    static Group& current();
    // This thread's open group, or null. If no thread has an open group, this reads one counter only.
    static Group* current_open() {
        if (open_groups.load(std::memory_order_relaxed) == 0) [[likely]]
            return nullptr;
        Group& group = current();
        return group.open() ? &group : nullptr;
    }
    ~Group();

    bool open() const { return depth_ > 0; }
    void start();
    // The open group gets a call of `function`, also if the call is refused.
    void count(const char* function) { collected_->count(function); }
    void made(const weftComm* handle, const Status& status) { collected_->made(handle, status); }
    void not_made() noexcept { collected_->not_made(); }
    // Executes the collected calls if this group is the outermost.
    Status end();
    // Ends the group and returns the collected calls.
    // Fails if the group is not the outermost or cannot run many times; the group is ended then, too.
    struct Kept {
        std::vector<QueuedCall> calls;
        std::shared_ptr<const CallStatuses> statuses;  // their state before the calls begin
    };
    Result<Kept> end_prepared();
    // Outside a group: `work` executes a prepared group, which then counts as the group that this thread ended last.
    template <class Work>
    Status carry_out_as(const CallStatuses& prepared, Work&& work) {
        begin_as(prepared);
        return carry_out(work);
    }
    // Statuses of the group that this thread ended last; null: none yet.
    const CallStatuses* ended() const { return ended_.get(); }
    // Refuses a call that names another stream than the earlier calls on its communicator.
    Status check(const QueuedCall& queued) const;
    Status add(QueuedCall queued);
    Status add(weftComm* handle, const Call& call) { return hold(QueuedCall(handle, call)); }
    // Executes an operation on `handle` now, or in its turn when the open group ends.
    Status add_or_run(weftComm* handle, std::shared_ptr<AsyncOperation> async_operation);
    void add(Joining joining);
    bool holds(const weftComm* handle) const;

  private:
    // add(), for a call that this thread makes now. Ranks that wait for this rank report that a group holds the call.
    Status hold(QueuedCall queued);
    void begin_as(const CallStatuses& prepared);
    void close();
    // Runs `work` with the statuses of the group that has just ended. A user's reduction may end other groups meanwhile.
    template <class Work>
    Status carry_out(Work&& work) {
        std::shared_ptr<CallStatuses> own = std::move(ended_);
        try {
            Status done = work(own);
            ended_ = std::move(own);
            return done;
        } catch (...) {
            own->mark_rest_unknown();
            ended_ = std::move(own);
            throw;
        }
    }

    static inline std::atomic<int> open_groups{0};  // in this process; relaxed: a thread sees its own

    int depth_ = 0;
    size_t usual_ = 0;  // number of calls of the last group
    std::vector<QueuedCall> calls_;
    std::vector<Joining> joinings_;
    std::shared_ptr<CallStatuses> collected_, ended_;  // swapped; streams may still write to ended_
};

}  // namespace weft::internal
