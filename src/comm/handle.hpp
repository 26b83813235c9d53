// handle.hpp: what a weftComm_t points to: a communicator, who is inside it, what streams do for it, and its last
// error. Never freed: a destroyed handle stays a tombstone, so that using it is a sentence and not a crash.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "src/comm/communicator.hpp"
#include "src/streams/host_stream.hpp"
#include "src/streams/turns.hpp"

struct weftComm {
    // making: by a stream, as config.blocking = 0 has it; unmade: nothing came of that.
    static constexpr uint64_t living = 0x7466657763006d6du, destroyed = 0x7466657764656164u,
                              making = 0x746665776d616b65u, unmade = 0x74666577756e6d64u;

    std::atomic<uint64_t> magic{making};
    std::atomic<uint32_t> inside{0};                         // 1 while a thread is inside, which alone may take turns
    std::atomic<bool> cancelled{false};                      // it was aborted while it was made
    weft::internal::Turns turns;                             // of streams: who has one drives it
    std::shared_ptr<weft::internal::HostStream> own_stream;  // of what is called without a stream; null: that blocks
    std::atomic<bool> has_own_stream{false};                 // or had; for who is not inside
    uint64_t process = 0;                                    // that made it
    std::shared_ptr<weft::internal::Communicator> communicator;  // used by who is inside; others take share()
    std::mutex mutex;                                            // of what follows, and of giving up `communicator`
    weft::internal::Failure error;                               // the newest
    weftResult_t unmade_by = weftSuccess;

    void keep_error(const weft::internal::Status& failure) {
        std::lock_guard lock(mutex);
        error = failure.failure();
    }
    void keep_stream(std::shared_ptr<weft::internal::HostStream> stream) {
        own_stream = std::move(stream);
        has_own_stream.store(true, std::memory_order_relaxed);
    }
    // Its communicator is there, with a stream of its own if it has none yet; or will never be.
    void deliver(std::unique_ptr<weft::internal::Communicator> made,
                 std::shared_ptr<weft::internal::HostStream> stream);
    void deliver(const weft::internal::Status& failure);
    void give_up() noexcept;  // if neither has been delivered
    // For calls that may come while another thread is inside or ends the communicator: null once it has ended.
    std::shared_ptr<weft::internal::Communicator> share() {
        std::lock_guard lock(mutex);
        return communicator;
    }
    // By who is inside: no call finds the communicator from here on.
    void retire() {
        magic.store(destroyed, std::memory_order_release);
        std::shared_ptr<weft::internal::Communicator> last;  // these end outside the lock, the stream first
        std::shared_ptr<weft::internal::HostStream> stream;
        std::lock_guard lock(mutex);
        last.swap(communicator);
        stream.swap(own_stream);
    }
    std::shared_ptr<weft::internal::HostStream> share_own_stream() {
        std::lock_guard lock(mutex);
        return own_stream;
    }
};

namespace weft::internal {

// Why the handle cannot be used here; ok if it can. Thread-safe.
Status check_handle(const weftComm* handle);
// Of config.blocking = 0: it is not there yet, or nothing came of it. Thread-safe.
bool is_being_made(const weftComm* handle);
// Of a communicator that is still to be made.
weftComm* make_handle();

// One thread at a time: the second is refused, and so is one that comes when the communicator has just ended. Streams
// may be driving it meanwhile.
class Entered {
  public:
    explicit Entered(weftComm* handle)
        : handle_(handle), alone_(handle->inside.exchange(1, std::memory_order_acquire) == 0) {}
    ~Entered() {
        if (alone_) handle_->inside.store(0, std::memory_order_release);
    }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;
    bool alone() const { return alone_; }
    bool entered() const { return alone_ && handle_->magic.load(std::memory_order_relaxed) == weftComm::living; }
    Status refused() const {
        if (alone_) return check_handle(handle_);
        if (const auto communicator = handle_->share(); communicator && communicator->in_function_here())
            return fail(
                error::usage_in_function,
                "this thread is inside this communicator, in the function of a user's reduction (weftRedOpCreate), "
                "which must not call Weft on it");
        return fail(error::usage_threads,
                    "another thread is inside this communicator: use one communicator from one thread at a time, or "
                    "one communicator a thread");
    }

    // Until no stream drives the communicator, nor will.
    void settle() { handle_->turns.settle(); }

  private:
    weftComm* handle_;
    bool alone_;
};

// The same, settled.
class Inside : public Entered {
  public:
    explicit Inside(weftComm* handle) : Entered(handle) {
        if (entered()) settle();
    }
};

}  // namespace weft::internal
