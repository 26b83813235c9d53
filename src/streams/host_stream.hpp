// host_stream.hpp: a queue of work on host memory and the thread that does it, one after the other. The user holds a
// weftHostStream_t. Its object is never freed, so that using a destroyed stream is an error and not a crash.
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

    // `nice`: of its thread, as nice(2) has it.
    static Result<std::shared_ptr<HostStream>> make(int nice);
    // Ends the thread when all work is done. In a child after fork there is neither.
    ~HostStream();

    void enqueue(Work work);
    // How much work has been given so far: a mark for the two below.
    uint64_t enqueued();
    // Whether all work up to `mark` is done: ok, weftInProgress, or the first failure among it that has not been told
    // yet.
    Status test(uint64_t mark);
    // Until that is not weftInProgress; weftTimeout after `timeout_ms` of waiting, negative: never.
    Status wait(uint64_t mark, int64_t timeout_ms);
    // True in the stream's own thread, which cannot wait for itself.
    bool is_current() const { return thread_.is_current(); }
    // The process ends: no work begins any more. Then what is under way may take until then, and the rest is dropped.
    void stop();
    void drop_rest(std::chrono::steady_clock::time_point until);

  private:
    HostStream() = default;
    void work();
    // By who holds the lock.
    Status verdict(uint64_t mark);
    void finish(Status done);

    std::mutex mutex_;
    std::condition_variable given_, done_;
    std::deque<Work> queue_;  // the first one is under way
    uint64_t enqueued_ = 0, finished_ = 0;
    bool busy_ = false, ending_ = false, stopped_ = false;
    std::deque<std::pair<uint64_t, Status>> failures_;  // not yet told
    std::atomic<bool> memory_ran_out_{false};           // where there was none for a failure
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
// What it stands for; fails if it was destroyed, or made before fork.
Result<std::shared_ptr<HostStream>> host_stream(void* stream);

}  // namespace weft::internal
