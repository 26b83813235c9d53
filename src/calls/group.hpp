// group.hpp: calls collected between weftGroupStart and weftGroupEnd on one thread. Thread-local.
#pragma once
#include <atomic>
#include <vector>

#include "src/calls/batch.hpp"

namespace weft::internal {

class Group {
  public:
    static Group& current();
    // The current one, if it is open; else null, which costs a look at a count as long as no thread has one.
    static Group* current_open() {
        if (open_groups.load(std::memory_order_relaxed) == 0) [[likely]]
            return nullptr;
        Group& group = current();
        return group.open() ? &group : nullptr;
    }
    ~Group();

    bool open() const { return depth_ > 0; }
    void start();
    // A call of `function` is being made, whatever comes of it: of the open group.
    void count(const char* function) { collected_->count(function); }
    void made(const weftComm* handle, const Status& status) { collected_->made(handle, status); }
    void not_made() noexcept { collected_->not_made(); }
    // Carries out what was collected, if it is the outermost.
    Status end();
    // The same, but hands out what was collected; fails, with this group ended all the same, if it is not the outermost
    // or cannot be carried out many times.
    struct Kept {
        std::vector<QueuedCall> calls;
        std::shared_ptr<const CallStatuses> statuses;  // as they are before the calls begin
    };
    Result<Kept> end_prepared();
    // Outside a group: a prepared one is carried out by `work`, and is the one that this thread ended last.
    template <class Work>
    Status carry_out_as(const CallStatuses& prepared, Work&& work) {
        begin_as(prepared);
        return carry_out(work);
    }
    // Of the group that this thread ended last; null: none yet.
    const CallStatuses* ended() const { return ended_.get(); }
    // Refuses a call that cannot go with the others on its communicator.
    Status check(const QueuedCall& queued) const;
    Status add(QueuedCall queued);
    Status add(weftComm* handle, const Communicator::Call& call) { return hold(QueuedCall(handle, call)); }
    // What `handle` has been asked for: now, or in its turn when an open group ends.
    Status add_or_run(weftComm* handle, std::shared_ptr<AsyncOperation> async_operation);
    void add(Joining joining);
    bool holds(const weftComm* handle) const;

  private:
    // add(), of a call that this thread makes now: whoever waits for it is told that it is held.
    Status hold(QueuedCall queued);
    void begin_as(const CallStatuses& prepared);
    void close();
    // What `work` does with the statuses of the group that has just ended. Users' reductions may end others meanwhile.
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

    static inline std::atomic<int> open_groups{0};  // in this process; a thread sees its own at once

    int depth_ = 0;
    size_t usual_ = 0;  // calls of the last group
    std::vector<QueuedCall> calls_;
    std::vector<Joining> joinings_;
    std::shared_ptr<CallStatuses> collected_, ended_;  // taken in turns; streams may still write to what has ended
};

}  // namespace weft::internal
