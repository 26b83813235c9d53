#include "src/streams/host_stream.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>
#include <shared_mutex>
#include <vector>

#include "src/base/fork_lock.hpp"
#include "src/base/log.hpp"
#include "src/base/process_token.hpp"

namespace weft::internal {

namespace {

// Bounds the list of failures that the user never reads.
constexpr size_t most_failures = 64;
constexpr std::chrono::seconds exit_patience{2};

// All streams ever made. Never freed, because streams' threads may outlive static objects. A child of fork() knows its
// parent's handles, so that their use is an error.
std::shared_mutex registry_mutex;
struct StreamRegistry {
    std::set<const void*> handles;
    std::atomic<bool> any{false};  // a handle was made
    std::vector<std::weak_ptr<HostStream>> living;
};
StreamRegistry& stream_registry() {
    static auto* const all = new StreamRegistry;
    hold_over_fork<registry_mutex>();
    return *all;
}

// At exit: calls in streams must not run while the program's static objects are destroyed.
void stop_all() {
    std::vector<std::shared_ptr<HostStream>> living;
    {
        std::shared_lock lock(registry_mutex);
        for (const auto& each : stream_registry().living)
            if (auto stream = each.lock()) living.push_back(std::move(stream));
    }
    for (const auto& stream : living) stream->stop();
    const auto until = std::chrono::steady_clock::now() + exit_patience;
    for (const auto& stream : living) stream->drop_rest(until);
}

void add(const std::shared_ptr<HostStream>& stream) {
    std::unique_lock lock(registry_mutex);
    static const bool registered = (std::atexit(stop_all), true);
    (void)registered;
    std::erase_if(stream_registry().living, [](const auto& each) { return each.expired(); });
    stream_registry().living.push_back(stream);
}

}  // namespace

static Status dropped() { return fail(error::usage_exiting, "the process exits: calls in streams are dropped"); }

Status in_progress() { return {error::call_in_progress, "not done yet"}; }

Result<std::shared_ptr<HostStream>> HostStream::make(int nice) {
    std::shared_ptr<HostStream> stream(new HostStream);
    auto thread = OwnedThread::start("weft-stream", [self = stream.get(), nice] {
        if (nice != 0 && setpriority(PRIO_PROCESS, 0, nice) != 0)  // of this thread alone, on Linux
            WEFT_LOG(info, init, "a stream's thread keeps its priority: {}", errno_text(errno));
        self->work();
    });
    if (!thread) return thread.take_status();
    stream->thread_ = std::move(*thread);
    add(stream);
    return stream;
}

HostStream::~HostStream() {
    if (!thread_.runs_here()) return;
    {
        std::lock_guard lock(mutex_);
        ending_ = true;
    }
    given_.notify_all();
    thread_.end();
}

void HostStream::enqueue(Work work) {
    std::unique_lock lock(mutex_);
    if (stopped_) {
        ++enqueued_;
        finish(dropped());
        lock.unlock();  // before the work's captures are destroyed
        return;
    }
    queue_.push_back(std::move(work));
    ++enqueued_;
    given_.notify_one();
}

uint64_t HostStream::enqueued() {
    std::lock_guard lock(mutex_);
    return enqueued_;
}

void HostStream::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        given_.wait(lock, [&] { return !queue_.empty() || ending_ || stopped_; });
        if (stopped_ || queue_.empty()) return;
        Work& next = queue_.front();  // other threads only append
        busy_ = true;
        lock.unlock();
        Status done;
        try {
            try {
                done = next();
            } catch (const std::bad_alloc&) {
                done = Status(error::memory_exhausted, "out of memory");
            } catch (const std::exception& exception) {
                done = Status(error::internal_exception, exception.what());
            }
        } catch (const std::bad_alloc&) {  // no memory even for the error text
            memory_ran_out_ = true;
        }
        next = nullptr;  // releases what the work holds before it is reported as done
        lock.lock();
        queue_.pop_front();
        busy_ = false;
        finish(std::move(done));
    }
}

void HostStream::finish(Status done) {
    ++finished_;
    done_.notify_all();
    // The first failures are the causes.
    if (done || failures_.size() == most_failures) return;
    try {
        failures_.emplace_back(finished_, std::move(done));
    } catch (const std::bad_alloc&) {
        memory_ran_out_ = true;
    }
}

Status HostStream::verdict(uint64_t mark) {
    if (finished_ < std::min(mark, enqueued_)) return in_progress();
    if (memory_ran_out_.exchange(false)) return fail(error::memory_exhausted, "out of memory");
    if (failures_.empty() || failures_.front().first > mark) return ok();
    Status first = std::move(failures_.front().second);
    failures_.pop_front();
    return first;
}

Status HostStream::test(uint64_t mark) {
    std::lock_guard lock(mutex_);
    return verdict(mark);
}

Status HostStream::wait(uint64_t mark, int64_t timeout_ms) {
    std::unique_lock lock(mutex_);
    mark = std::min(mark, enqueued_);  // work enqueued during the wait is not included
    const auto done = [&] { return finished_ >= mark; };
    if (timeout_ms < 0)
        done_.wait(lock, done);
    else if (!done_.wait_for(lock, std::chrono::milliseconds(std::min<int64_t>(timeout_ms, INT64_MAX / 2'000'000)),
                             done))
        return fail(error::timeout_stream,
                    "after {} ms of waiting, {} of the stream's {} calls are done; the calls go on, wait again",
                    timeout_ms, finished_, mark);
    return verdict(mark);
}

void HostStream::stop() {
    if (!thread_.runs_here()) return;
    std::lock_guard lock(mutex_);
    stopped_ = true;
    given_.notify_all();
}

void HostStream::drop_rest(std::chrono::steady_clock::time_point until) {
    if (!thread_.runs_here()) return;
    std::deque<Work> rest;  // destroyed outside the lock
    std::unique_lock lock(mutex_);
    done_.wait_until(lock, until, [&] { return !busy_; });
    while (queue_.size() > size_t(busy_)) {
        rest.push_back(std::move(queue_.back()));
        queue_.pop_back();
        finish(dropped());
    }
    const bool ends = !busy_;
    lock.unlock();
    if (ends) thread_.end();
}

weftHostStream_t make_stream_handle(std::shared_ptr<HostStream> stream) {
    auto handle = std::make_unique<HostStreamHandle>();
    handle->process = process_token();
    handle->stream = std::move(stream);
    std::unique_lock lock(registry_mutex);
    stream_registry().handles.insert(handle.get());
    stream_registry().any.store(true, std::memory_order_release);
    return reinterpret_cast<weftHostStream_t>(handle.release());
}

bool is_host_stream(const void* stream) {
    if (!stream || !stream_registry().any.load(std::memory_order_acquire)) return false;
    std::shared_lock lock(registry_mutex);
    return stream_registry().handles.count(stream) > 0;
}

Result<std::shared_ptr<HostStream>> host_stream(void* stream) {
    if (!is_host_stream(stream)) return fail(error::argument_stream, "{} was not made by weftStreamCreate", stream);
    auto* handle = static_cast<HostStreamHandle*>(stream);
    if (handle->process != process_token())
        return fail(error::usage_forked, "the stream was made before fork(); a child process makes its own");
    std::lock_guard lock(handle->mutex);
    if (!handle->stream) return fail(error::argument_stream, "the stream was destroyed before");
    return handle->stream;
}

}  // namespace weft::internal
