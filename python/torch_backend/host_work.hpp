// host_work.hpp: c10d::Work of an operation on host memory.
#pragma once
#include <ATen/ThreadLocalState.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "progress.hpp"

namespace weft_torch {

class Driver;
class Hooks;

// Thread-safe. Its driver advances it; complete() is called once, by the driver.
class HostWork final : public c10d::Work {
  public:
    // `outputs`: the result. `title`: its name in profiles, or null.
    HostWork(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
             std::vector<at::Tensor> outputs, uint64_t sequence, std::chrono::milliseconds timeout,
             std::weak_ptr<Driver> driver);

    // Before it is shared: it fails in a thread that waits for it, if nothing happens for its timeout. `progress`: of a work
    // without a driver.
    void limit_wait(std::shared_ptr<const Progress> progress = nullptr) {
        limited_ = true;
        progress_ = std::move(progress);
    }
    // Before it is shared: `hooks` learn of its end.
    void report_to(std::shared_ptr<const Hooks> hooks) { hooks_ = std::move(hooks); }
    // Before it is shared: they learn of its failure alone.
    void report_failure_to(std::shared_ptr<const Hooks> hooks) {
        hooks_ = std::move(hooks);
        reports_success_ = false;
    }
    // Before it is shared: it lets go of this when it ends.
    void hold(std::shared_ptr<void> held) {
        if (held) held_ = std::move(held);
    }
    bool is_done() const { return done_.load(std::memory_order_acquire); }
    // Of the thread that called: modes of autograd and inference.
    const at::ThreadLocalState& state() const { return caller_state_; }
    // Before complete(): it failed.
    void fail(std::exception_ptr failure) { failure_ = std::move(failure); }
    void set_source(int rank) { source_ = rank; }
    // Ends it: wakes waiting threads and runs the callbacks of its future.
    void complete();

    bool isCompleted() override { return is_done(); }
    bool isSuccess() const override { return is_done() && !failure_; }
    std::exception_ptr exception() const override { return is_done() ? failure_ : nullptr; }
    int sourceRank() const override { return source_; }
    std::vector<at::Tensor> result() override { return outputs_; }
    void synchronize() override { wait(kNoTimeout); }
    void blockCurrentStream() override { wait(kNoTimeout); }
    bool wait(std::chrono::milliseconds timeout) override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
    float getDuration() const override;
    uint64_t getSequencenumber() const override { return sequence_; }
    std::chrono::milliseconds getTimeout() const { return timeout_; }  // overrides from torch 2.15 on
    uint64_t getCompletionKey() const { return key_; }                 // the same

  private:
    // The caller holds mutex_ of the base class.
    void complete_future();

    const at::ThreadLocalState caller_state_;
    std::vector<at::Tensor> outputs_;
    const uint64_t sequence_;
    const uint64_t key_;
    const std::chrono::milliseconds timeout_;
    const std::weak_ptr<Driver> driver_;  // empty: none, other threads complete it
    const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
    std::chrono::steady_clock::time_point ended_;
    std::exception_ptr failure_;     // written before done_
    std::atomic<bool> done_{false};  // released by complete()
    int source_ = -1;
    std::atomic<bool> ending_{false};  // it failed, and hooks run before waiting threads learn of it
    bool limited_ = false;
    std::shared_ptr<const Progress> progress_;
    std::shared_ptr<const Hooks> hooks_;  // null: none
    bool reports_success_ = true;
    std::shared_ptr<void> held_;
    c10::intrusive_ptr<c10::ivalue::Future> future_, result_;  // null: nobody asked
};

using HostWorkPtr = c10::intrusive_ptr<HostWork>;

// A work for several: the end of coalescing.
class JoinedWork final : public c10d::Work {
  public:
    JoinedWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> parts)
        : Work(rank, c10d::OpType::COALESCED), parts_(std::move(parts)) {}

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    std::vector<at::Tensor> result() override;
    void synchronize() override;
    void blockCurrentStream() override;
    bool wait(std::chrono::milliseconds timeout) override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    // The first failure of a part.
    c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
    // The longest of the parts.
    float getDuration() const override;
    // Of the first part, which has the collectives.
    uint64_t getSequencenumber() const override;
    std::chrono::milliseconds getTimeout() const;  // overrides from torch 2.15 on; the longest
    uint64_t getCompletionKey() const;             // the same; of the first part

  private:
    const std::vector<c10::intrusive_ptr<c10d::Work>> parts_;
};

}  // namespace weft_torch
