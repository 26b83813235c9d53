// hooks.hpp: functions that torch or the user asks to be called when an operation ends.
// torch's flight recorder attaches itself to every group by them. Its abort hook writes the dump.
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace weft_torch {

#ifdef C10D_BACKEND_HAS_HOOKS
using c10d::AbortHook;
using c10d::CompletionHook;
#else  // before torch 2.15: nothing registers them
using AbortHook = std::function<void()>;
struct CompletionHookArgs {
    uint64_t key;
    std::optional<float> duration_ms;
};
using CompletionHook = std::function<void(const CompletionHookArgs&)>;
#endif

// An operation that ended.
struct EndedOperation {
    using Time = std::chrono::steady_clock::time_point;
    c10d::OpType type;
    uint64_t sequence;
    uint64_t key;  // of next_key()
    Time begun, ended;
    bool succeeded;
    std::optional<float> ms = {};  // how long it took, if not from begun to ended
    bool is_timed = true;          // false: that is unknown
};

// A number that names one operation of this process.
uint64_t next_key();

// Of one backend. Thread-safe. No lock is held while a hook runs.
class Hooks {
  public:
    using EndHook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;  // successful or not

    void set_abort(int64_t id, AbortHook hook);  // null: removes it
    void set_completion(int64_t id, CompletionHook hook);
    void set_end(EndHook hook);
    // Whether any hook is there. torch has one for aborts in every group.
    bool any() const { return any_.load(std::memory_order_acquire); }
    // Whether one of them wants to know operations that succeed.
    bool any_of_success() const { return any_of_success_.load(std::memory_order_acquire); }

    // Runs the abort hooks if `failure` is one of the group. Called before waiting threads learn of it, so that a dump is
    // written before the process ends.
    void failed(const std::exception_ptr& failure) const;
    void failed() const;
    // Runs the other hooks. Called when the work says that it is complete: the flight recorder asks it, too.
    void ended(const EndedOperation& operation) const;
    // From now on, operations fail since the user ends the group: abort hooks do not run.
    void silence() { silent_.store(true, std::memory_order_release); }
    void listen() { silent_.store(false, std::memory_order_release); }

    // Runs `call`, a synchronous operation, and reports its end. Returns a complete work, or null if `call` returned false.
    c10::intrusive_ptr<c10d::Work> observe(int rank, c10d::OpType type, uint64_t sequence,
                                           const std::vector<at::Tensor>& outputs,
                                           const std::function<bool()>& call) const;

  private:
    struct Table {
        std::map<int64_t, AbortHook> aborts;
        std::map<int64_t, CompletionHook> completions;
        EndHook end;
    };
    std::shared_ptr<const Table> table() const;
    void change(const std::function<void(Table&)>& by);

    std::atomic<bool> any_{false}, any_of_success_{false};  // released by change()
    std::atomic<bool> silent_{false};                       // released by silence()
    mutable std::mutex mutex_;                              // of the pointer; a table does not change
    std::shared_ptr<const Table> table_ = std::make_shared<Table>();
};

// The work of a synchronous operation that succeeded.
class DoneWork final : public c10d::Work {
  public:
    DoneWork(int rank, c10d::OpType type, uint64_t sequence, std::vector<at::Tensor> outputs = {},
             uint64_t key = next_key(), float ms = 0)
        : Work(rank, type), outputs_(std::move(outputs)), sequence_(sequence), key_(key), ms_(ms) {}
    bool isCompleted() override { return true; }
    bool isSuccess() const override { return true; }
    std::exception_ptr exception() const override { return nullptr; }
    std::vector<at::Tensor> result() override { return outputs_; }
    void synchronize() override {}
    void blockCurrentStream() override {}
    bool wait(std::chrono::milliseconds) override { return true; }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
    float getDuration() const override { return ms_; }
    uint64_t getSequencenumber() const override { return sequence_; }
    uint64_t getCompletionKey() const { return key_; }  // overrides from torch 2.15 on

  private:
    const std::vector<at::Tensor> outputs_;
    const uint64_t sequence_, key_;
    const float ms_;
};

}  // namespace weft_torch
