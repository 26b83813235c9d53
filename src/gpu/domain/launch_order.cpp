#include "src/gpu/domain/launch_order.hpp"

#include <unistd.h>

#include <algorithm>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"

namespace weft::internal::cuda {

namespace {

constexpr int64_t kernel_patience_us = 2'000'000;  // after an abort: kernels poll the flag all the time

}  // namespace

Status LaunchOrder::begin(std::shared_ptr<SharedAbortFlag> last_launches) {
    last_launches_ = std::move(last_launches);
    for (Event* event : {&done_, &captured_done_}) {
        auto made = Event::create(kernels_.context());
        if (!made) return made.take_status();
        *event = std::move(*made);
    }
    return ok();
}

void LaunchOrder::end() {
    for (Event* event : {&done_, &captured_done_}) *event = Event();
}

Status LaunchOrder::claim(CUstream stream, const StreamFacts& facts) {
    ++claims_;
    if (stream == CU_STREAM_PER_THREAD) return ok();
    for (const int peer : ranks_.members) {
        const auto& theirs = last_launches_->claims[peer];
        // Streams may be passed from rank to rank between operations.
        if (peer == ranks_.rank || theirs.launch.load(std::memory_order_acquire) < claims_ ||
            theirs.stream.load(std::memory_order_relaxed) != facts.id)
            continue;
        --claims_;  // a refused call does not count
        return fail(error::stream_shared,
                    "ranks {} and {} of this process use one stream and would wait for each other: give each rank a "
                    "stream of its own, made with cudaStreamNonBlocking",
                    std::min(ranks_.rank, peer), std::max(ranks_.rank, peer));
    }
    last_launches_->claims[ranks_.rank].stream.store(facts.id, std::memory_order_relaxed);
    last_launches_->claims[ranks_.rank].launch.store(claims_, std::memory_order_release);
    return ok();
}

Status LaunchOrder::order(CUstream stream, const StreamFacts& facts) {
    const Driver& driver = kernels_.driver();
    const auto wait = [&](const Event& event) {
        return driver.check(driver.StreamWaitEvent(stream, event.handle(), CU_EVENT_WAIT_DEFAULT),
                            "order a stream behind the communicator's call before");
    };
    if (facts.capturing) {
        // A graph cannot wait for work outside of it: the user orders the graph's launch.
        if (capture_ == facts.capture_id && last_captured_ != facts.id) return wait(captured_done_);
        return ok();
    }
    // CU_STREAM_PER_THREAD is another stream in another thread.
    if (launched_ && (last_ != facts.id || stream == CU_STREAM_PER_THREAD)) return wait(done_);
    return ok();
}

Status LaunchOrder::note(CUstream stream, const StreamFacts& facts) {
    if (facts.capturing) {
        capture_ = facts.capture_id;
        last_captured_ = facts.id;
        captured_.store(true, std::memory_order_relaxed);
        return captured_done_.record(stream);
    }
    last_ = facts.id;
    launched_ = true;
    return done_.record(stream);
}

bool LaunchOrder::working() const {
    if (!done_) return false;
    // The caller, such as the service thread, may have no context or another one current.
    const ContextScope scope(kernels_.context());
    const RelaxedCapture relaxed(kernels_.driver());
    const auto done = done_.done();
    return done && !*done;  // nothing runs in a lost context
}

void LaunchOrder::finish() const {
    for (int64_t aborted_us = 0; working(); usleep(50)) {
        if (!ranks_.segment->aborted()) continue;
        if (aborted_us == 0) aborted_us = now_us();
        if (now_us() - aborted_us > kernel_patience_us) {
            WEFT_LOG_RANK(ranks_.rank, warn, coll,
                          "leaves although a kernel of it has not ended: its stream may wait for others");
            return;
        }
    }
}

}  // namespace weft::internal::cuda
