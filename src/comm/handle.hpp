// handle.hpp: what a weftComm_t points to: a communicator, who is inside it, and its last error. Never freed: a
// destroyed handle stays in quarantine, so that using it is a sentence and not a crash.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "src/comm/communicator.hpp"

struct weftComm {
    static constexpr uint64_t living = 0x7466657763006d6du, destroyed = 0x7466657764656164u;

    std::atomic<uint64_t> magic{living};
    std::atomic<uint32_t> inside{0};                   // 1 while a thread drives it
    uint64_t process = 0;                              // that made it
    weftComm* older = nullptr;                         // the handle made before: the quarantine's list
    std::shared_ptr<weft::Communicator> communicator;  // used by who is inside; others take share()
    std::mutex mutex;                                  // of what follows, and of giving up `communicator`
    std::string error;

    // For calls that may come while another thread is inside or ends the communicator: null once it has ended.
    std::shared_ptr<weft::Communicator> share() {
        std::lock_guard lock(mutex);
        return communicator;
    }
    // By who is inside: no call finds the communicator from here on.
    void retire() {
        magic.store(destroyed, std::memory_order_release);
        std::shared_ptr<weft::Communicator> last;  // ends outside the lock
        std::lock_guard lock(mutex);
        last.swap(communicator);
    }
};

namespace weft {

// Why the handle cannot be used here; ok if it can. Thread-safe.
Status check_handle(const weftComm* handle);
weftComm* make_handle(std::unique_ptr<Communicator> communicator);

// One thread at a time: the second is refused, and so is one that comes when the communicator has just ended.
class Inside {
  public:
    explicit Inside(weftComm* handle)
        : handle_(handle), alone_(handle->inside.exchange(1, std::memory_order_acquire) == 0) {}
    ~Inside() {
        if (alone_) handle_->inside.store(0, std::memory_order_release);
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    bool entered() const { return alone_ && handle_->magic.load(std::memory_order_relaxed) == weftComm::living; }
    Status refused() const {
        if (alone_) return check_handle(handle_);
        return fail(weftInvalidUsage,
                    "another thread is inside this communicator: use one communicator from one thread at a time, or "
                    "one communicator a thread");
    }

  private:
    weftComm* handle_;
    bool alone_;
};

}  // namespace weft
