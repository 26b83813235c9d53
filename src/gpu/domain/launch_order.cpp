#include "src/gpu/domain/launch_order.hpp"

#include <unistd.h>

#include <algorithm>
#include <optional>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/base/options.hpp"

namespace weft::internal::cuda {

namespace {

constexpr int64_t kernel_patience_us = 2'000'000;  // after an abort: kernels poll the flag all the time
constexpr int usual_queues = 8;                    // hardware queues of a process on a device

}  // namespace

bool LaunchOrder::defers() { return options().gpu_queues < usual_queues; }

Status LaunchOrder::begin(std::shared_ptr<SharedAbortFlag> last_launches, const uint32_t* ended) {
    last_launches_ = std::move(last_launches);
    ended_ = ended;
    deferring_ = defers();
    for (auto* event : {&done_, &captured_done_}) {
        auto made = Event::create(kernels_.context());
        if (!made) return made.take_status();
        *event = std::make_shared<Event>(std::move(*made));
    }
    return ok();
}

void LaunchOrder::end() {
    if (chain_) chain_->forget(done_, captured_done_);
    done_ = captured_done_ = nullptr;
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

Result<bool> LaunchOrder::record_deferred() const {
    const std::lock_guard lock(recording_);
    const uint64_t launched = newest_.number.load(std::memory_order_acquire);
    if (recorded_.load(std::memory_order_relaxed) == launched) return true;
    const CUstream stream = newest_.stream.load(std::memory_order_relaxed);
    const auto captured = [&]() -> std::optional<bool> {
        const auto facts = describe_stream(kernels_.driver(), stream);
        // Without such a stream, its calls had ended when it was destroyed: the program promises that in deferred mode.
        if (!facts || facts->id != newest_.stream_id.load(std::memory_order_relaxed)) return std::nullopt;
        return facts->capturing;
    };
    if (const auto before = captured()) {
        if (*before) return false;
        WEFT_TRY(done_->record(stream));
        // Another thread may have begun a capture before the record, which would then be a node of its graph.
        if (captured().value_or(false)) return false;
    }
    recorded_.store(launched, std::memory_order_release);
    return true;
}

Status LaunchOrder::order(CUstream stream, const StreamFacts& facts) {
    const Driver& driver = kernels_.driver();
    const auto wait = [&](const Event& event) {
        return driver.check(driver.StreamWaitEvent(stream, event.handle(), CU_EVENT_WAIT_DEFAULT),
                            "order a stream behind the communicator's call before");
    };
    const auto wait_for_chain = [&](const LaunchChain::Link& before) {
        const bool own = before.done == done_ || before.done == captured_done_;
        return before.done && !own && before.stream != facts.id ? wait(*before.done) : ok();
    };
    if (facts.capturing) {
        // A graph cannot wait for work outside of it: the user orders the graph's launch.
        if (chain_ && chain_->capture == facts.capture_id) WEFT_TRY(wait_for_chain(chain_->captured));
        if (capture_ == facts.capture_id && last_captured_ != facts.id) return wait(*captured_done_);
        return ok();
    }
    if (chain_) WEFT_TRY(wait_for_chain(chain_->direct));
    const uint64_t launched = newest_.number.load(std::memory_order_relaxed);
    // CU_STREAM_PER_THREAD is another stream in another thread.
    if (launched == 0 ||
        (newest_.stream_id.load(std::memory_order_relaxed) == facts.id && stream != CU_STREAM_PER_THREAD))
        return ok();
    deferring_ = false;
    if (recorded_.load(std::memory_order_relaxed) != launched) {
        if (reported()) return ok();
        auto recorded = record_deferred();
        if (!recorded) return recorded.take_status();
        if (!*recorded)
            return fail(
                error::stream_capture,
                "the communicator's call before was on another stream, which is captured now, so that this call "
                "cannot wait for it: end the capture first, or set WEFT_GPU_QUEUES=8");
    }
    return wait(*done_);
}

Status LaunchOrder::note(CUstream stream, const StreamFacts& facts) {
    if (!facts.capturing) return note_direct(stream, facts);
    capture_ = facts.capture_id;
    last_captured_ = facts.id;
    captured_.store(true, std::memory_order_relaxed);
    if (chain_) chain_->captured = {captured_done_, facts.id}, chain_->capture = facts.capture_id;
    return captured_done_->record(stream);
}

Status LaunchOrder::note_direct(CUstream stream, const StreamFacts& facts) {
    const uint64_t number = newest_.number.load(std::memory_order_relaxed) + 1;
    Status recorded;
    // Another thread's stream of its own could not be found later.
    const bool at_once = !deferring_ || chain_ || stream == CU_STREAM_PER_THREAD;
    if (at_once) {
        recorded = done_->record(stream);
        if (chain_) chain_->direct = {done_, facts.id};
    }
    newest_.stream_id.store(facts.id, std::memory_order_relaxed);
    newest_.stream.store(stream, std::memory_order_relaxed);
    newest_.number.store(number, std::memory_order_release);
    if (at_once) recorded_.store(number, std::memory_order_release);
    return recorded;
}

LaunchOrder::LaunchState LaunchOrder::state() const {
    if (!done_) return LaunchState::ended;
    // The caller, such as the service thread, may have no context or another one current.
    const ContextScope scope(kernels_.context());
    const RelaxedCapture relaxed(kernels_.driver());
    const bool follows = recorded_.load(std::memory_order_acquire) == newest_.number.load(std::memory_order_acquire);
    const bool reports = !follows && defers();
    if (reports && reported()) return LaunchState::ended;
    const bool report_comes = reports && !ranks_.segment->aborted();
    if (!follows && !report_comes) {
        const auto recorded = record_deferred();
        if (recorded && !*recorded) return LaunchState::unknown;
    }
    const CUresult result = kernels_.driver().EventQuery(done_->handle());
    // Nothing runs in a lost context.
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY && result != CUDA_ERROR_CAPTURED_EVENT)
        return LaunchState::ended;
    return report_comes || result == CUDA_ERROR_NOT_READY ? LaunchState::running : LaunchState::ended;
}

void LaunchOrder::finish() const {
    for (int64_t aborted_us = 0; state() == LaunchState::running; usleep(50)) {
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
