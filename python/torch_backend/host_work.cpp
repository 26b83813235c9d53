#include "host_work.hpp"

#include <ATen/core/ivalue.h>

#include "communicator.hpp"
#include "driver.hpp"
#include "failure.hpp"
#include "hooks.hpp"
#include "python_caller.hpp"

namespace weft_torch {

HostWork::HostWork(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
                   std::vector<at::Tensor> outputs, uint64_t sequence, std::chrono::milliseconds timeout,
                   std::weak_ptr<Driver> driver)
    : Work(rank, type, title, title ? std::optional(inputs) : std::nullopt),
      outputs_(std::move(outputs)),
      sequence_(sequence),
      key_(next_key()),
      timeout_(timeout),
      driver_(std::move(driver)) {}

void HostWork::complete_future() {
    if (failure_)
        future_->setErrorIfNeeded(failure_);
    else
        future_->markCompleted(c10::IValue(outputs_));
}

void HostWork::complete() {
    c10::intrusive_ptr<c10::ivalue::Future> future, result;
    if (hooks_ && failure_) {
        ending_ = true;
        hooks_->failed(failure_);
    }
    held_.reset();
    {
        std::lock_guard lock(mutex_);
        ended_ = std::chrono::steady_clock::now();
        done_.store(true, std::memory_order_release);
        future = future_;
        result = result_;
    }
    if (hooks_ && reports_success_) hooks_->ended({opType_, sequence_, key_, begun_, ended_, !failure_});
    finish(failure_);  // ends the record of the profiler
    // First: a callback of the other future may wait for it.
    if (result) result->markCompleted(result_of(failure_));
    if (future) complete_future();
}

bool HostWork::wait(std::chrono::milliseconds timeout) {
    if (!is_done()) {
        const WithoutGil no_gil;  // synchronize() holds it
        using Time = std::optional<Driver::Time>;
        const auto now = std::chrono::steady_clock::now();
        const bool given = timeout != kNoTimeout && timeout.count() > 0;
        const Time until = given ? Time(now + timeout) : std::nullopt;
        // Later than what executes it finds the same: that has more to say.
        constexpr auto slack = std::chrono::seconds(1);
        const bool limited = limited_ && timeout_ms(timeout_) > 0 && !ending_;
        const auto limit = limited ? std::optional(timeout_ + slack) : std::nullopt;
        bool in_time = true;
        if (auto driver = driver_.lock()) {
            in_time = driver->wait_for(*this, until, limit);
        } else {
            std::unique_lock lock(mutex_);
            // Progress moves it.
            const auto deadline = [&] {
                return until ? *until : (progress_ ? std::max(now, progress_->latest()) : now) + *limit;
            };
            const auto done = [&] { return is_done(); };
            if (!until && !limit) cv_.wait(lock, done);
            do in_time = done() || cv_.wait_until(lock, deadline(), done);
            while (!in_time && std::chrono::steady_clock::now() < deadline());
        }
        if (!in_time && !given && ending_) return wait(kNoTimeout);
        if (!in_time) throw_failure(wait_timeout_text(opType_, given ? timeout : timeout_));
    }
    if (failure_) std::rethrow_exception(failure_);
    return true;
}

c10::intrusive_ptr<c10::ivalue::Future> HostWork::getFuture() {
    std::unique_lock lock(mutex_);
    if (!future_) {
        future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
        if (is_done()) complete_future();
    }
    return future_;
}

c10::intrusive_ptr<c10::ivalue::Future> HostWork::getFutureResult() {
    std::unique_lock lock(mutex_);
    if (!result_) {
        result_ = future_result();
        if (is_done()) result_->markCompleted(result_of(failure_));
    }
    return result_;
}

float HostWork::getDuration() const {
    TORCH_CHECK(is_done(), "the duration of an operation is known when it is complete");
    return std::chrono::duration<float, std::milli>(ended_ - begun_).count();
}

bool JoinedWork::isCompleted() {
    for (const auto& part : parts_)
        if (!part->isCompleted()) return false;
    return true;
}

bool JoinedWork::isSuccess() const {
    for (const auto& part : parts_)
        if (!part->isSuccess()) return false;
    return true;
}

std::exception_ptr JoinedWork::exception() const {
    for (const auto& part : parts_)
        if (auto failure = part->exception()) return failure;
    return nullptr;
}

std::vector<at::Tensor> JoinedWork::result() {
    std::vector<at::Tensor> all;
    for (const auto& part : parts_)
        for (const at::Tensor& tensor : part->result()) all.push_back(tensor);
    return all;
}

void JoinedWork::synchronize() { wait(kNoTimeout); }

void JoinedWork::blockCurrentStream() {
    for (const auto& part : parts_) part->blockCurrentStream();
}

bool JoinedWork::wait(std::chrono::milliseconds timeout) {
    if (timeout == kNoTimeout || timeout.count() < 0) {
        for (const auto& part : parts_) part->wait(kNoTimeout);
        return true;
    }
    const auto until = std::chrono::steady_clock::now() + timeout;
    for (const auto& part : parts_) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
        part->wait(std::max(left, std::chrono::milliseconds(1)));
    }
    return true;
}

c10::intrusive_ptr<c10::ivalue::Future> JoinedWork::getFuture() {
    c10::List<c10::intrusive_ptr<c10::ivalue::Future>> futures(
        c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
    for (const auto& part : parts_) futures.push_back(part->getFuture());
    auto all = c10::collectAll(std::move(futures));
    // The parts' tensors, as one list.
    return all->then(
        [parts = parts_](c10::ivalue::Future& ended) {
            if (ended.hasError()) std::rethrow_exception(ended.exception_ptr());
            std::vector<at::Tensor> tensors;
            for (const auto& part : parts)
                for (const at::Tensor& tensor : part->result()) tensors.push_back(tensor);
            return c10::IValue(std::move(tensors));
        },
        c10::ListType::create(c10::TensorType::get()));
}

c10::intrusive_ptr<c10::ivalue::Future> JoinedWork::getFutureResult() {
    c10::List<c10::intrusive_ptr<c10::ivalue::Future>> results(c10::FutureType::create(c10::AnyEnumType::get()));
    for (const auto& part : parts_) results.push_back(part->getFutureResult());
    return c10::collectAll(results)->then(
        [results](c10::ivalue::Future&) {
            for (const c10::intrusive_ptr<c10::ivalue::Future>& each : results)
                if (each->value().toInt() != int64_t(c10d::WorkResult::SUCCESS)) return each->value();
            return result_of(nullptr);
        },
        c10::AnyEnumType::get());
}

float JoinedWork::getDuration() const {
    float longest = 0;
    for (const auto& part : parts_) longest = std::max(longest, part->getDuration());
    return longest;
}

uint64_t JoinedWork::getSequencenumber() const { return parts_.empty() ? 0 : parts_[0]->getSequencenumber(); }

// Before torch 2.15 a work has neither a timeout nor a key.
std::chrono::milliseconds JoinedWork::getTimeout() const {
    std::chrono::milliseconds longest = kNoTimeout;
    const auto add = [&](const auto& part) {
        if constexpr (requires { part.getTimeout(); }) longest = std::max(longest, part.getTimeout());
    };
    for (const auto& part : parts_) add(*part);
    return longest;
}

uint64_t JoinedWork::getCompletionKey() const {
    const auto key = [](const auto& part) -> uint64_t {
        if constexpr (requires { part.getCompletionKey(); }) return part.getCompletionKey();
        return 0;
    };
    return parts_.empty() ? 0 : key(*parts_[0]);
}

}  // namespace weft_torch
