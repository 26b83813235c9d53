// launch_queue.hpp: carries launches out in their order: in a thread of its own, or at once if they only enqueue work.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "src/base/thread.hpp"

namespace weft::internal::train {

// After a failure no further launch is carried out. Thread-safe.
class LaunchQueue {
  public:
    using Launch = std::function<Status()>;
    using Ticket = uint64_t;  // how many launches were added up to this one
    static Result<std::unique_ptr<LaunchQueue>> start();
    static std::unique_ptr<LaunchQueue> at_once() { return std::unique_ptr<LaunchQueue>(new LaunchQueue); }
    LaunchQueue(const LaunchQueue&) = delete;
    LaunchQueue& operator=(const LaunchQueue&) = delete;
    // Waits for the launch in progress and drops the rest. In a child after fork there is no thread to end.
    ~LaunchQueue();

    Ticket add(Launch launch);
    // For a caller that calls wait() next: the thread need not wake.
    Ticket add_before_wait(Launch launch);
    // Carries out launches up to this one that no thread has begun, and waits for the others. Returns the first
    // failure.
    Status wait(Ticket last);
    // The same for all launches.
    Status wait();
    // Whether the launch was carried out or dropped. Does not wait.
    bool done(Ticket launch);
    // The first failure so far.
    Status failure();
    // For a launch that will fail so: others may learn of it before it returns.
    void fail(const Status& why);

  private:
    LaunchQueue() = default;
    void work();
    // The caller holds the lock.
    Status wait_for(std::unique_lock<std::mutex>& lock, Ticket last);
    // Carries the first launch out, or drops it. The caller holds the lock, and no launch is in progress.
    void carry_out_next(std::unique_lock<std::mutex>& lock);
    // The caller holds the lock.
    void wake_waiters();
    static Status carry_out(const Launch& launch);

    std::mutex mutex_;
    std::condition_variable added_, done_;  // a launch was added or left over; one is done
    std::deque<Launch> launches_;
    Ticket added_count_ = 0, done_count_ = 0;
    Ticket least_awaited_ = UINT64_MAX;  // of all waiters since the last wake
    bool busy_ = false;                  // one more launch is in progress
    bool ending_ = false;
    Status failure_;
    bool has_thread_ = false;
    OwnedThread thread_;
};

}  // namespace weft::internal::train
