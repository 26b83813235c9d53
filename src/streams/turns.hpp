// turns.hpp: the order of stream calls on one communicator. Calls on any streams take turns in the order in which they
// were enqueued. A call without a stream waits until all turns have ended.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>

namespace weft::internal {

// Owned by the communicator. Thread-safe.
class Turns {
  public:
    bool idle() const { return open_.load(std::memory_order_acquire) == 0; }
    // Waits until all turns have ended, or will never begin.
    void settle() {
        if (!idle()) [[unlikely]]
            wait_until_idle();
    }
    // No turn begins any more. Returns when none is active.
    void close();
    // Whether this thread has the active turn: then it must not wait for the end of turns.
    bool active_here() {
        if (idle()) [[likely]]
            return false;
        std::lock_guard lock(mutex_);
        return driver_ == std::this_thread::get_id();
    }

  private:
    friend class Turn;
    void wait_until_idle();
    void end(uint64_t number);  // the caller holds the lock

    std::atomic<uint64_t> open_{0};  // taken and not ended
    std::mutex mutex_;
    std::condition_variable changed_;
    uint64_t taken_ = 0, next_ = 0;
    std::deque<bool> ended_;  // of those from next_ to taken_
    bool active_ = false, closed_ = false;
    std::thread::id driver_;  // the thread with the active turn
};

// One turn. A group takes its turns on several communicators while it has exclusive access to all of them, so turns have
// one order on all communicators. Its stream awaits all turns, then begins each, so that no turn blocks another.
class Turn {
  public:
    explicit Turn(Turns& turns);
    Turn(const Turn&) = delete;
    ~Turn();  // ends it, whether it began or not
    // Waits until all earlier turns have ended or no turn begins any more.
    void await();
    // After await(). False: no turn begins any more.
    bool begin();

  private:
    Turns* turns_;
    uint64_t number_;
    bool active_ = false;
};

}  // namespace weft::internal
