// device_work.hpp: c10d::Work of an operation on a device. Its calls are enqueued on a stream, and an event follows them.
#pragma once
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <memory>
#include <optional>
#include <vector>

#include "communicator.hpp"
#include "host_work.hpp"

namespace weft_torch {

// An operation as its work reports it.
struct Operation {
    int rank;
    c10d::OpType type;
    const char* title;  // in profiles
    std::vector<at::Tensor> outputs;
    uint64_t sequence;
    std::chrono::milliseconds timeout;
    bool blocks_host = false;              // wait() returns when the operation has ended
    std::shared_ptr<void> held = nullptr;  // until the work is gone
};

// Thread-safe once it is enqueued or launch() was called.
class DeviceWork final : public c10d::Work {
  public:
    // `kept`: tensors that the device uses on another stream than the caller's. They live until wait().
    DeviceWork(Operation operation, std::vector<at::Tensor> kept, std::shared_ptr<Communicator> communicator);
    ~DeviceWork() override;

    // Records the events of `stream`, which is the current one, around `calls`, which enqueue the operation.
    void enqueue(const c10::Stream& stream, bool timed, const std::function<void()>& calls);
    // Another thread enqueues it: a job with this work.
    void launch(HostWorkPtr job) { launch_ = std::move(job); }
    // Before launch(): the job has a communicator of its own.
    void runs_on(std::shared_ptr<Communicator> communicator) { communicator_ = std::move(communicator); }
    // Behind the operation; null before enqueue().
    const std::shared_ptr<c10::Event>& end() const { return end_; }
    // Before the operation; null unless it is timed.
    const std::shared_ptr<c10::Event>& begin() const { return begin_; }
    bool is_captured() const { return captured_; }
    uint64_t key() const { return key_; }

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    int sourceRank() const override { return source_; }
    void set_source(int rank) { source_ = rank; }
    std::vector<at::Tensor> result() override { return operation_.outputs; }
    // Lets the current stream wait. Blocks the host only until another thread has enqueued it.
    void synchronize() override { follow(kNoTimeout); }
    void blockCurrentStream() override { synchronize(); }
    // The same. Blocks the host if `timeout` is given, or for a barrier.
    bool wait(std::chrono::milliseconds timeout) override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    float getDuration() const override;
    uint64_t getSequencenumber() const override { return operation_.sequence; }
    std::chrono::milliseconds getTimeout() const { return operation_.timeout; }  // overrides from torch 2.15 on
    uint64_t getCompletionKey() const { return key_; }                           // the same

  private:
    bool has_ended() const;
    // synchronize(), with a limit of the wait for the thread that enqueues it.
    void follow(std::chrono::milliseconds timeout);
    void complete(const c10::intrusive_ptr<c10::ivalue::Future>& future) const;

    const Operation operation_;
    const uint64_t key_;
    std::vector<at::Tensor> kept_;                // guarded by mutex_ of the base class
    std::shared_ptr<Communicator> communicator_;  // tells failures
    HostWorkPtr launch_;                          // null: the caller enqueued it
    std::optional<c10::Stream> stream_;
    std::shared_ptr<c10::Event> begin_, end_;  // begin_: null unless timed
    bool captured_ = false;                    // it runs when a graph is launched, which no event of it tells
    int source_ = -1;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
};

using DeviceWorkPtr = c10::intrusive_ptr<DeviceWork>;

// The stream as Weft takes it.
weftStream_t native(const c10::Stream& stream);
// The current stream of this thread on the device.
c10::Stream current_stream(const c10::Device& device);

}  // namespace weft_torch
