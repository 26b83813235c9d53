// handle.hpp: what a weftComm_t points to: a communicator, who is inside it, and its last error. Never freed: a destroyed handle
// stays in quarantine, so that using it is a sentence and not a crash.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "src/comm/communicator.hpp"

struct weftComm {
    static constexpr uint64_t living = 0x7466657763006d6du, destroyed = 0x7466657764656164u;

    std::atomic<uint64_t> magic{living};
    std::atomic<uint32_t> inside{0};    // 1 while a thread drives it
    uint64_t process = 0;               // that made it
    std::unique_ptr<weft::Communicator> communicator;
    std::mutex error_mutex;
    std::string error;
};

namespace weft {

// Why the handle cannot be used here; ok if it can. Thread-safe.
Status check_handle(const weftComm* handle);
weftComm* make_handle(std::unique_ptr<Communicator> communicator);

// One thread at a time: the second is refused.
class Inside {
  public:
    explicit Inside(weftComm* handle) : handle_(handle), entered_(handle->inside.exchange(1, std::memory_order_acquire) == 0) {}
    ~Inside() {
        if (entered_) handle_->inside.store(0, std::memory_order_release);
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    bool entered() const { return entered_; }
    static Status refused() {
        return fail(weftInvalidUsage, "another thread is inside this communicator: use one communicator from one thread at a time, or one communicator a thread");
    }

  private:
    weftComm* handle_;
    bool entered_;
};

}  // namespace weft
