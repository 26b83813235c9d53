// handle.hpp: the struct that a weftComm_t points to: a communicator, its users, its streams and its last error.
// Never freed: a destroyed handle stays a tombstone, so that its use is an error message and not a crash.
#pragma once
#include <pthread.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "src/comm/communicator.hpp"
#include "src/streams/host_stream.hpp"
#include "src/streams/turns.hpp"

struct weftComm {
    // making: a stream makes the communicator (config.blocking = 0). unmade: that failed.
    static constexpr uint64_t living = 0x7466657763006d6du, destroyed = 0x7466657764656164u,
                              making = 0x746665776d616b65u, unmade = 0x74666577756e6d64u;

    std::atomic<uint64_t> magic{making};
    std::atomic<uintptr_t> inside{0};                            // the thread inside, which alone may take turns, or 0
    std::atomic<bool> cancelled{false};                          // aborted while it was being made
    weft::internal::Turns turns;                                 // the stream with the turn drives the communicator
    std::shared_ptr<weft::internal::HostStream> own_stream;      // for calls without a stream; null: they block
    std::atomic<bool> has_own_stream{false};                     // stays true after its end; for threads outside
    uint64_t process = 0;                                        // token of the process that made it
    std::shared_ptr<weft::internal::Communicator> communicator;  // used by the thread inside; others take share()
    std::mutex mutex;               // guards the fields below and the release of `communicator`
    weft::internal::Failure error;  // the newest
    weftResult_t unmade_by = weftSuccess;

    void keep_error(const weft::internal::Status& failure) {
        std::lock_guard lock(mutex);
        error = failure.failure();
    }
    void keep_stream(std::shared_ptr<weft::internal::HostStream> stream) {
        own_stream = std::move(stream);
        has_own_stream.store(true, std::memory_order_relaxed);
    }
    // Delivers the communicator (and its own stream, if it has none yet), or the reason why there is none.
    void deliver(std::unique_ptr<weft::internal::Communicator> made,
                 std::shared_ptr<weft::internal::HostStream> stream);
    void deliver(const weft::internal::Status& failure);
    void give_up() noexcept;  // after this, a communicator that was not delivered counts as failed
    // For calls while another thread may be inside or end the communicator. Null after its end.
    std::shared_ptr<weft::internal::Communicator> share() {
        std::lock_guard lock(mutex);
        return communicator;
    }
    // Called by the thread inside: after this, no call finds the communicator.
    void retire() {
        magic.store(destroyed, std::memory_order_release);
        std::shared_ptr<weft::internal::Communicator> last;  // destroyed outside the lock, the stream first
        std::shared_ptr<weft::internal::HostStream> stream;
        std::lock_guard lock(mutex);
        last.swap(communicator);
        stream.swap(own_stream);
    }
    static uintptr_t this_thread() { return uintptr_t(pthread_self()); }
    // Whether this thread executes calls on the communicator, and so is in the function of a user's reduction. Then it
    // would wait for itself.
    bool executes_here() { return inside.load(std::memory_order_relaxed) == this_thread() || turns.active_here(); }
    std::shared_ptr<weft::internal::HostStream> share_own_stream() {
        std::lock_guard lock(mutex);
        return own_stream;
    }
};

namespace weft::internal {

// Ok if the handle can be used, otherwise the reason. Thread-safe.
Status check_handle(const weftComm* handle);
// Whether a communicator with config.blocking = 0 is not ready yet, or could not be made. Thread-safe.
bool is_being_made(const weftComm* handle);
// The handle of a communicator that will be made.
weftComm* make_handle();

// Admits one thread at a time. It refuses a second thread, and any thread after the end of the communicator.
// Streams may drive the communicator meanwhile.
class Entered {
  public:
    explicit Entered(weftComm* handle) : handle_(handle), alone_(enter()) {}
    ~Entered() {
        if (alone_) handle_->inside.store(0, std::memory_order_release);
    }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;
    bool alone() const { return alone_; }
    bool entered() const { return alone_ && handle_->magic.load(std::memory_order_relaxed) == weftComm::living; }
    Status refused() const {
        if (alone_) return check_handle(handle_);
        if (handle_->executes_here())
            return fail(error::usage_in_function,
                        "this thread executes calls on this communicator, in the function of a user's reduction "
                        "(weftRedOpCreate), which must not call Weft on it");
        return fail(error::usage_threads,
                    "another thread is inside this communicator: use one communicator from one thread at a time, or "
                    "one communicator a thread");
    }

    // Waits until no stream drives the communicator and no turn is open.
    void settle() { handle_->turns.settle(); }

  private:
    bool enter() {
        uintptr_t none = 0;
        if (!handle_->inside.compare_exchange_strong(none, weftComm::this_thread(), std::memory_order_acquire,
                                                     std::memory_order_relaxed))
            return false;
        if (!handle_->turns.active_here()) return true;
        handle_->inside.store(0, std::memory_order_release);
        return false;
    }

    weftComm* handle_;
    bool alone_;
};

// Entered and settled.
class Inside : public Entered {
  public:
    explicit Inside(weftComm* handle) : Entered(handle) {
        if (entered()) settle();
    }
};

}  // namespace weft::internal
