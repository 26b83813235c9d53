// backend.hpp: the c10d backend "weft". Each collective of torch becomes one call of include/weft.
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "call.hpp"
#include "channels.hpp"
#include "communicator.hpp"
#include "device_group.hpp"
#include "extension.hpp"
#include "hooks.hpp"
#include "host_work.hpp"
#include "job_queue.hpp"
#include "process.hpp"

namespace weft_torch {

inline constexpr const char* backend_name = "weft";

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Milliseconds = std::chrono::milliseconds;

// pg_options of init_process_group and new_group.
struct GroupOptions final : c10d::Backend::Options {
    explicit GroupOptions(Milliseconds timeout = kBackendDefaultTimeout)
        : c10d::Backend::Options(backend_name, timeout) {}
    // Overrides from torch 2.15 on.
    c10::intrusive_ptr<c10d::Backend::Options> clone() const { return c10::make_intrusive<GroupOptions>(*this); }

    std::string algo;                           // as WEFT_ALGO
    int deterministic = WEFT_CONFIG_UNDEF_INT;  // as WEFT_DETERMINISTIC
    bool high_priority_stream = false;          // for asynchronous calls on devices
};

// Thread-safe: calls of several threads are executed in the order in which they come.
class Backend final : public c10d::Backend {
  public:
    // Blocks until all ranks of the group have joined.
    Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, c10::intrusive_ptr<GroupOptions> options);
    Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, c10::intrusive_ptr<GroupOptions> options,
            std::unique_ptr<Communicator> communicator);
    ~Backend() override;
    void release_resources() override;
    // A backend that shut_all_down() finds.
    template <class... Arguments>
    static c10::intrusive_ptr<Backend> make(Arguments&&... arguments) {
        auto made = c10::make_intrusive<Backend>(std::forward<Arguments>(arguments)...);
        enter(made);
        return made;
    }

    const std::string getBackendName() const override { return backend_name; }
    c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }

    WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
    WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
    WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
    WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
    WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
    WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
    WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                const c10d::AllgatherOptions& options) override;
    WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
    WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions& options) override;
    WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
    // Overrides from torch 2.15 on.
    WorkPtr gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options);
    WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
    WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                           const c10d::ReduceScatterOptions& options) override;
    WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                 const c10d::ReduceScatterOptions& options) override;
    WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                            const c10d::ReduceScatterOptions& options) override;
    WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                          std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
    WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
    WorkPtr barrier(const c10d::BarrierOptions& options) override;
    void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

    WorkPtr send(Tensors& tensors, int destination, int tag) override;
    WorkPtr recv(Tensors& tensors, int source, int tag) override;
    WorkPtr recvAnysource(Tensors& tensors, int tag) override;

    bool supportsCoalescing() const override { return true; }
    void startCoalescing() override;
    WorkPtr endCoalescing() override;

    bool supportsSplitting() const override { return true; }
    c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                            const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
    c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                            const c10::intrusive_ptr<c10d::Backend::Options>& options, const int& rank,
                                            const int& size) override;
    bool supportsShrinking() const override { return true; }
    c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<int64_t>& excluded, int flags,
                                             const c10::intrusive_ptr<c10d::Backend::Options>& options) override;

    void setTimeout(Milliseconds timeout) override { options_->timeout = timeout; }
    void addEphemeralTimeout(const Milliseconds& timeout) { extension_->add(timeout); }  // overrides from torch 2.15 on
    uint64_t getSequenceNumberForGroup() override { return sequence_; }
    void setSequenceNumberForGroup() override {}
    void abort() override;
    void shutdown() override;
    c10d::ErrorType getError() override;

    // From torch 2.15 on, the following override.
    bool isInitialized() { return communicator_ != nullptr; }
#ifdef C10D_BACKEND_HAS_WINDOW
    bool supportsWindow() const override { return true; }
    c10::intrusive_ptr<c10d::Window> new_window(const std::optional<at::Tensor>& tensor) override;
#endif
#ifdef C10D_BACKEND_HAS_RECONFIGURE
    bool supportsReconfigure() const override { return true; }
    c10d::ReconfigureHandle get_reconfigure_handle() const override;
    WorkPtr reconfigure(const c10d::ReconfigureOptions& options) override;
#endif
    std::unordered_map<std::string, uint64_t> getMemoryStats();
    bool supportsAbortHooks() const { return true; }
    void registerAbortHook(int64_t id, AbortHook hook);
    void unregisterAbortHook(int64_t id) { hooks_->set_abort(id, nullptr); }
    bool supportsCompletionHooks() const { return true; }
    void registerCompletionHook(int64_t id, CompletionHook hook) { hooks_->set_completion(id, std::move(hook)); }
    void unregisterCompletionHook(int64_t id) { hooks_->set_completion(id, nullptr); }
    // Runs the abort hooks of backends that failed since the last look. False: this process has no backend.
    static bool look_for_failures();

    void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override;
    void waitForPendingWorks() override;
    // Works on host memory are always timed.
    void enableCollectivesTiming() override;
    bool supportsTimeEstimation() const override { return true; }
    void startTimeEstimate();
    float endTimeEstimate();

    // Makes the communicator of a device; otherwise the first call does.
    void eagerConnectSingleDevice(at::Device device) override;
    bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
    at::Tensor allocateTensor(long size, at::TensorOptions options) override;

  private:
    static void enter(const c10::intrusive_ptr<Backend>& made);
    struct Title {
        c10d::OpType type;
        const char* name;  // in profiles
    };
    // Executes calls in this thread, or queues them. Returns null if they are done.
    WorkPtr submit(Title title, const Tensors& inputs, Tensors outputs, std::vector<Call> calls, Milliseconds timeout,
                   bool async);
    // The same, not coalesced: on the host or a device.
    WorkPtr run_anywhere(Title title, const Tensors& inputs, Tensors outputs, std::vector<Call> calls,
                         Milliseconds timeout, bool async);
    // The same of tensors of a device. Null: the caller's stream has the calls. `blocks_host`: a wait for it does.
    WorkPtr run_on_device(const c10::Device& device, Title title, const Tensors& inputs, Tensors outputs,
                          const std::vector<Call>& calls, Milliseconds timeout, bool async, bool blocks_host);
    // The same of a call that is no collective: it cannot be coalesced.
    WorkPtr run(Title title, const Tensors& inputs, Tensors outputs, std::vector<Call> calls, Milliseconds timeout,
                bool async);
    WorkPtr one_sided(const c10::Device& device, const char* title, const Tensors& inputs, Milliseconds timeout,
                      bool async, std::function<void(weftComm_t, weftStream_t)> call);
    // A local call, in this thread.
    void run_in_order(const std::function<void(weftComm_t)>& call);
    // Keeps a tensor until the communicator is gone: it is registered as a window.
    void keep(at::Tensor tensor);
    void leave();
    void end_channels();
    // Returns the failure of a call on a device that no other call has reported; null: none.
    std::exception_ptr end_devices();
    // shutdown() where no exception may leave.
    void shutdown_quietly();
    // `timeout` of a call, or the group's if it is unset, with the extension.
    Milliseconds chosen(Milliseconds timeout) const;
    HostWorkPtr make_work(Title title, const Tensors& inputs, Tensors outputs, Milliseconds timeout,
                          std::weak_ptr<Driver> driver);
    void check_process() const;
    // Whether the communicator or one of a pair of ranks failed. Thread-safe.
    bool has_failed();
    int checked_root(const char* call, int64_t root) const;
    int checked_peer(const char* call, int peer) const;

    Call all_reduce(const char* call, const at::Tensor& tensor, const c10d::ReduceOp& op) const;
    Call all_gather(const char* call, const at::Tensor& output, const at::Tensor& input) const;
    Call all_gather(const char* call, const Tensors& outputs, const at::Tensor& input) const;
    Call reduce_scatter(const char* call, const at::Tensor& output, const at::Tensor& input,
                        const c10d::ReduceOp& op) const;
    WorkPtr finish_message(WorkPtr work);
    // The device whose streams a barrier waits for; none: it is a barrier of the hosts.
    std::optional<c10::Device> barrier_device(const c10d::BarrierOptions& options);
    // A send or receive of a tensor on a device. In a batch the peer may be this rank. `call`: for errors.
    WorkPtr device_message(const char* call, const at::Tensor& tensor, int peer, bool sends);
    std::shared_ptr<DeviceGroup> device_group(const c10::Device& device);
    std::vector<std::shared_ptr<DeviceGroup>> device_groups();
    Sender& sender(int destination);
    std::shared_ptr<Receiver> receiver(int source);
    // The store under keys of this group alone. A call of an ended group may delete its keys late.
    c10::intrusive_ptr<c10d::Store> own_store() const;
    std::unique_ptr<Connection> connection(int source, int destination, bool sends);
    // Those of a communicator whose name ends so.
    Settings settings(const std::string& suffix = "") const;

    const Origin origin_;
    c10::intrusive_ptr<c10d::Store> store_;
    const c10::intrusive_ptr<c10d::Store> first_store_;  // before reconfigure()
    c10::intrusive_ptr<GroupOptions> options_;
    std::shared_ptr<JobQueue> queue_ = std::make_shared<JobQueue>();
    Tensors kept_;                                // guarded by channels_mutex_
    std::unique_ptr<Communicator> communicator_;  // null: before reconfigure(), and after shutdown()
    const std::shared_ptr<Hooks> hooks_ = std::make_shared<Hooks>();
    const std::shared_ptr<Extension> extension_ = std::make_shared<Extension>();
    bool failure_seen_ = false;  // by the watch
    std::atomic<uint64_t> sequence_{0};
    uint64_t monitored_barriers_ = 0;

    std::mutex channels_mutex_;  // of the next four
    std::map<int, std::unique_ptr<Sender>> senders_;
    std::map<int, std::shared_ptr<Receiver>> receivers_;
    const std::shared_ptr<Progress> receivers_progress_ = std::make_shared<Progress>();
    std::vector<std::shared_ptr<DeviceGroup>> devices_;
    std::shared_ptr<DeviceNumbers> device_numbers_ = std::make_shared<DeviceNumbers>();
    std::atomic<bool> times_devices_{false};

    // Between startCoalescing() and endCoalescing().
    struct Coalesced {
        std::vector<Call> calls;
        Tensors inputs, outputs;
        std::vector<WorkPtr> messages;
        Milliseconds timeout{0};
        bool has_collective = false;
    };
    bool is_coalescing() const;
    // Closes the batch that an exception left before its end, when the Python code that opened it is gone.
    void watch_batch();
    std::shared_ptr<Coalesced> coalesced_;  // of coalescing_thread_
    const std::shared_ptr<std::atomic<std::thread::id>> coalescing_thread_ =
        std::make_shared<std::atomic<std::thread::id>>();
    int shrinks_ = 0;
    // From startTimeEstimate() to endTimeEstimate(). Calls of other threads are executed.
    struct Estimate {
        const std::thread::id thread = std::this_thread::get_id();
        double us = 0;
    };
    bool is_estimating() const;
    // Throws in an estimate: Weft predicts no time of this call.
    void refuse_estimate(const char* call, const c10::Device& device) const;
    std::shared_ptr<Estimate> estimate_;  // of estimating_thread_
    const std::shared_ptr<std::atomic<std::thread::id>> estimating_thread_ =
        std::make_shared<std::atomic<std::thread::id>>();
    unsigned windows_ = 0;
    std::atomic<bool> ended_{false};
    std::atomic<bool> shut_down_{false};  // ended_ for good

    mutable std::mutex handle_mutex_;
    mutable std::string handle_;  // of get_reconfigure_handle(); empty: none was asked for
    std::set<int64_t> uuids_;     // of reconfigure()

    friend void shut_all_down();
    friend class Window;
};

// Shuts all backends of this process down: at exit.
void shut_all_down();

}  // namespace weft_torch
