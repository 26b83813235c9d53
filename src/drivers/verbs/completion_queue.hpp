// completion_queue.hpp: where a device reports requests that have ended.
#pragma once
#include <atomic>
#include <memory>

#include "src/base/result.hpp"
#include "src/drivers/verbs/context.hpp"

namespace weft::internal::verbs {

// Completions are the only sign that data has arrived: only they order memory. The context must outlive it, and it must
// outlive its queue pairs. Thread-bound, except mark_failed() and failed().
class CompletionQueue {
  public:
    // Room for `entries` completions. More of them are an error of the queue. `sleeps`: with a descriptor to sleep on.
    static Result<std::unique_ptr<CompletionQueue>> make(const Context& context, int entries, bool sleeps);
    CompletionQueue(const CompletionQueue&) = delete;
    CompletionQueue& operator=(const CompletionQueue&) = delete;
    ~CompletionQueue();

    // Takes up to `most` completions, at most 32. Returns their number; negative: the device failed.
    int poll(abi::Completion* completions, int most) {
        return queue_->context->operations.poll_cq(queue_, most, completions);
    }
    // Makes the descriptor readable at the next completion. Poll once more after it: a completion may have come before.
    Status arm();
    // Does not block. -1: the queue does not sleep.
    int fd() const { return channel_ ? channel_->fd : -1; }
    // Takes the signals from the descriptor. Acknowledges them in bulk, because each acknowledgement takes a lock.
    void take_signals();

    // It reports nothing any more, perhaps not even that. Queue pairs need another one.
    void mark_failed() { failed_.store(true, std::memory_order_relaxed); }
    bool failed() const { return failed_.load(std::memory_order_relaxed); }

    abi::Queue* get() const { return queue_; }

  private:
    CompletionQueue(const Context& context, abi::Channel* channel, abi::Queue* queue)
        : context_(context), channel_(channel), queue_(queue) {}
    void acknowledge();

    const Context& context_;
    abi::Channel* const channel_;
    abi::Queue* const queue_;
    unsigned taken_ = 0;  // signals, and not acknowledged
    std::atomic<bool> failed_{false};
};

}  // namespace weft::internal::verbs
