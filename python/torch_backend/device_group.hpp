// device_group.hpp: the part of a backend that serves the tensors of one device. It has a communicator of its own, which the
// first call makes, and a stream on which asynchronous calls go on beside the caller's work.
#pragma once
#include <c10/core/Device.h>

#include <deque>
#include <map>
#include <mutex>

#include "call.hpp"
#include "channels.hpp"
#include "device_work.hpp"
#include "hooks.hpp"
#include "job_queue.hpp"
#include "own_stream.hpp"

namespace weft_torch {

struct DeviceSettings {
    Settings communicator;
    bool high_priority = false;  // of the stream
};

// Numbers for the keys of a backend's devices in the store. Ranks may have other numbers for their devices, so what they do
// in one order is counted.
struct DeviceNumbers {
    std::mutex mutex;
    int communicators = 0;
    std::map<std::pair<int, bool>, int> channels;  // by peer, and whether it sends
};

// Thread-safe: calls of several threads are enqueued in the order in which they come. No lock is held while hooks run.
class DeviceGroup {
  public:
    // `hooks`: of the backend.
    DeviceGroup(c10::Device device, c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<DeviceNumbers> numbers,
                int rank, int size, DeviceSettings settings, std::shared_ptr<const Hooks> hooks);

    const c10::Device& device() const { return device_; }
    // Makes the communicator unless it was made. Blocks until all ranks of the group call it.
    std::shared_ptr<Communicator> communicator(std::chrono::milliseconds timeout);
    bool is_made();
    // Enqueues the calls: on the current stream, or, if `async`, on the group's behind the current one.
    // `inputs`: tensors that they use beside the outputs.
    DeviceWorkPtr run(Operation operation, const std::vector<at::Tensor>& inputs, const std::vector<Call>& calls,
                      bool async);
    // One message outside a batch. Each direction between two ranks has a communicator and a stream of its own.
    DeviceWorkPtr message(Operation operation, const at::Tensor& tensor, int peer, bool sends);

    void time_operations() { timed_ = true; }
    // Reports the ended operations to the hooks.
    void report_ended();
    // Waits until the enqueued operations have ended, and reports them.
    void drain();
    // The failure that has hit one of its communicators; weftSuccess: none.
    weftResult_t error();
    bool has_failed() { return error() != weftSuccess; }
    void abort();
    // Lets the enqueued collectives end, gives messages half a second, and leaves the communicators. Returns a failure that
    // no call has reported; null: none.
    std::exception_ptr end();
    // Whether every enqueued collective ends within half a second.
    bool becomes_idle();

  private:
    // The operation that was enqueued last, outside of captures.
    struct Last {
        HostWorkPtr job;  // null: none enqueues it
        std::shared_ptr<c10::Event> end;
    };
    struct Channel {
        Channel(std::unique_ptr<Connection> made, const c10::Device& device, bool high_priority)
            : connection(std::move(made)), stream(device, high_priority) {}
        const std::unique_ptr<Connection> connection;
        const std::shared_ptr<JobQueue> queue = std::make_shared<JobQueue>();
        const OwnStream stream;
        Last last;  // guarded by mutex_
    };
    // An operation that the hooks wait for.
    struct Pending {
        EndedOperation operation;
        std::shared_ptr<c10::Event> begin, end;
    };

    DeviceWorkPtr enqueue(Operation& operation, const std::vector<at::Tensor>& inputs, const std::vector<Call>& calls,
                          bool async);
    DeviceWorkPtr enqueue_message(const Operation& operation, const at::Tensor& tensor, int peer, bool sends);
    std::shared_ptr<Channel> channel(int peer, bool sends);
    std::shared_ptr<Communicator> made_communicator(std::chrono::milliseconds timeout);
    void note(const Operation& operation, const DeviceWork& work);
    void report_failure(const std::exception_ptr& failure);
    // Waits until the operation has ended, or until then. Errors of the device count as its end.
    bool passes(const std::function<Last()>& last, std::chrono::steady_clock::time_point until);

    const c10::Device device_;
    const c10::intrusive_ptr<c10d::Store> store_;
    const std::shared_ptr<DeviceNumbers> numbers_;
    const int rank_, size_;
    const DeviceSettings settings_;
    const std::shared_ptr<const Hooks> hooks_;
    std::atomic<bool> timed_{false}, aborted_{false};
    std::atomic<int> entered_{0};  // threads that enqueue calls

    std::mutex order_;  // held while calls are enqueued, and while the communicator is made; before mutex_
    std::optional<OwnStream> stream_;

    std::mutex mutex_;  // of what follows
    std::shared_ptr<Communicator> made_;
    std::shared_ptr<c10::Event> last_;                                   // behind the latest collective
    std::map<std::pair<int, bool>, std::shared_ptr<Channel>> channels_;  // by peer, and whether it sends
    std::deque<Pending> pending_;
};

// A message as a call. A message has the elements of the tensor alone: no tag and no size.
Call message_call(const at::Tensor& tensor, int peer, bool sends);
// "cuda" means the current device.
c10::Device with_index(const c10::Device& device);
// Memory of weftMemAlloc. It is freed when the device is idle.
at::Tensor allocate_on_device(int64_t size, size_t bytes, const at::TensorOptions& options);
// The device of all these tensors; the CPU if there are none. Refuses several. `call` names the call.
c10::Device device_of(const char* call, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs);

}  // namespace weft_torch
