// driver.hpp: progress of operations on host memory. A driver's operations advance one at a time. Its own thread advances
// them, or a thread that waits for one of them: then the wait costs no switch of threads.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "alarm.hpp"
#include "host_work.hpp"
#include "process.hpp"
#include "progress.hpp"

namespace weft_torch {

// Thread-safe. The owner calls end() before it destroys what step() uses. Its threads share it, because a callback may end
// the group that owns it.
class Driver : public std::enable_shared_from_this<Driver> {
  public:
    using Time = std::chrono::steady_clock::time_point;
    Driver() = default;
    Driver(const Driver&) = delete;
    virtual ~Driver();

    // Advances operations until `work` is done, or waits for that until `until`. False: `until` passed before, or another
    // thread was advancing and no operation made progress for `limit`.
    bool wait_for(const HostWork& work, std::optional<Time> until, std::optional<std::chrono::milliseconds> limit);
    // Runs `call` in this thread if no operation is left; otherwise returns false.
    bool run_alone(const std::function<void()>& call);
    // Waits until no operation is left or active, and until other threads have run the callbacks of those that ended.
    void drain();
    // Whether no operation is left or active. Callbacks may still run: their operations have ended.
    bool is_idle();
    // Waits for that until `until`.
    bool become_idle(Time until);
    // Drops the operations that did not begin, with a failure, and joins the threads. The active one must end by itself.
    void end();

  protected:
    // Whether step() has something to do. The caller holds the lock.
    virtual bool has_work() const = 0;
    // Whether an operation is left or active. The caller holds the lock.
    virtual bool is_pending() const { return active_ || has_work(); }
    // Advances one operation by one step and releases `lock` meanwhile. Returns an operation that ended, or null.
    virtual HostWorkPtr step(std::unique_lock<std::mutex>& lock) = 0;
    // Removes and returns all operations that did not begin. The caller holds the lock.
    virtual std::vector<HostWorkPtr> take_waiting() = 0;
    // After work was added: starts a thread, or lets one wake soon. The caller holds the lock.
    void wake();

    std::mutex mutex_;
    bool ending_ = false;
    bool active_ = false;  // a thread is in step() or run_alone()
    Progress progress_;

  private:
    void advance(std::unique_lock<std::mutex>& lock);
    bool is_busy() const { return is_pending() || completing_ > own_completions(); }
    int own_completions() const;
    void serve();

    // Callbacks of a finished operation may wait for a later one. So a further thread starts while all others run callbacks.
    std::vector<std::thread> threads_;
    int sleeping_ = 0;  // threads in alarm_, or on their way there
    Alarm alarm_;
    std::condition_variable changed_;
    const Origin origin_;
    int completing_ = 0;  // operations whose callbacks run
};

}  // namespace weft_torch
