// host_stream.hpp: a host stream: a queue of work on host memory, and the thread that executes it in order. The user holds
// a weftHostStream_t, whose object is never freed, so that using a destroyed stream is an error and not a crash.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "src/base/thread.hpp"

namespace weft::internal {

// Thread-safe.
class HostStream {
  public:
    using Work = std::function<Status()>;
    static constexpr uint64_t everything = UINT64_MAX;

    // `nice`: the niceness of its thread, as in nice(2).
    static Result<std::shared_ptr<HostStream>> make(int nice);
    // Ends the thread when all work is done. A child of fork() has no thread to end.
    ~HostStream();

    void enqueue(Work work);
    // The number of work items enqueued so far: a mark for test() and wait().
    uint64_t enqueued();
    // Whether all work up to `mark` is done: ok, weftInProgress, or its first failure that was not returned yet.
    Status test(uint64_t mark);
    // Waits until test() is not weftInProgress. weftTimeout after `timeout_ms`; negative: no limit.
    Status wait(uint64_t mark, int64_t timeout_ms);
    // True on the stream's own thread, which cannot wait for itself.
    bool is_current() const { return thread_.is_current(); }
    // At exit of the process: stop() lets no further work begin. drop_rest() waits for the active work until `until`
    // and drops the rest.
    void stop();
    void drop_rest(std::chrono::steady_clock::time_point until);

  private:
    HostStream() = default;
    void work();
    // The caller holds the lock.
    Status verdict(uint64_t mark);
    void finish(Status done);

    std::mutex mutex_;
    std::condition_variable given_, done_;
    std::deque<Work> queue_;  // the first item may be active
    uint64_t enqueued_ = 0, finished_ = 0;
    bool busy_ = false, ending_ = false, stopped_ = false;
    std::deque<std::pair<uint64_t, Status>> failures_;  // not returned to the user yet
    std::atomic<bool> memory_ran_out_{false};           // no memory was left to record a failure
    OwnedThread thread_;
};

Status in_progress();

// The object behind a weftHostStream_t. It is never freed.
struct HostStreamHandle {
    uint64_t process = 0;
    std::mutex mutex;
    std::shared_ptr<HostStream> stream;  // null: destroyed
};

weftHostStream_t make_stream_handle(std::shared_ptr<HostStream> stream);
inline HostStreamHandle* handle_of(weftHostStream_t stream) { return reinterpret_cast<HostStreamHandle*>(stream); }
// Whether a weftStream_t is a weftHostStream_t, alive or destroyed; otherwise it is a CUDA stream.
bool is_host_stream(const void* stream);
// The stream of a handle. Fails if it was destroyed, or made before fork().
Result<std::shared_ptr<HostStream>> host_stream(void* stream);

}  // namespace weft::internal
