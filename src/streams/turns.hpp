// turns.hpp: calls that were given to streams take turns on their communicator, in the order in which they were given,
// whatever streams they are on. Who calls without a stream waits until all turns have ended. Thread-safe.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>

namespace weft::internal {

class Turns {
  public:
    bool idle() const { return open_.load(std::memory_order_acquire) == 0; }
    // Until all turns that were taken have ended, or will never begin.
    void settle() {
        if (!idle()) [[unlikely]]
            wait_until_idle();
    }
    // Ends them all: none begins any more. Returns when none is under way.
    void close();

  private:
    friend class Turn;
    void wait_until_idle();
    void end(uint64_t number);  // by who holds the lock

    std::atomic<uint64_t> open_{0};  // taken and not ended
    std::mutex mutex_;
    std::condition_variable changed_;
    uint64_t taken_ = 0, next_ = 0;
    std::deque<bool> ended_;  // of those from next_ to taken_
    bool active_ = false, closed_ = false;
};

// One of them. Turns on several communicators are taken while the caller is alone inside all of these, so whoever waits
// for turns on several finds them in one order: it awaits all, then begins each, so that none is held up by another.
class Turn {
  public:
    explicit Turn(Turns& turns);
    Turn(const Turn&) = delete;
    ~Turn();  // ends it, whether it has come or not
    // Until all before have ended or no turn begins any more.
    void await();
    // After that. False: none begins any more.
    bool begin();

  private:
    Turns* turns_;
    uint64_t number_;
    bool active_ = false;
};

}  // namespace weft::internal
