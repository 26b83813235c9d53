// domain.hpp: a rank's resources for a communicator on GPUs. These are device memory that all ranks of its host can
// access, host memory that its kernels report to, and the order of its launches. The ranks of a host make the domain
// together when they join, and verify that each reaches each. Then the hosts exchange their results. The domain works
// for all ranks or for none.
//
// The memory belongs to the rank. Peers write to it until their kernels have ended, and unmap it when they leave. A
// rank that leaves hands its domain over (retire()). Its memory is unused when every other rank has left or died.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/base/shared_memory.hpp"
#include "src/drivers/cuda/event.hpp"
#include "src/drivers/cuda/exportable_memory.hpp"
#include "src/drivers/cuda/ipc.hpp"
#include "src/drivers/cuda/stream.hpp"
#include "src/gpu/domain/connections.hpp"
#include "src/gpu/domain/kernel_set.hpp"
#include "src/net/fd_passing.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal::cuda {

struct AccessArguments;
struct MessageArguments;
struct MessageReport;
struct BlockWait;
struct SignalReport;
class SharedAbortFlag;
class HostFallbackMemory;
struct DomainLayout;

// Thread-bound to the rank unless stated otherwise.
class Domain {
  public:
    // Messages that peers cannot access in place pass through this staging memory of each rank, in tiles.
    static constexpr size_t staging_bytes = size_t(4) << 20;
    static constexpr size_t token_bytes = 8;  // for a part without data: an element of any type

    // The most ranks of all hosts. Fused bodies support fewer ranks (kernel_arguments.hpp).
    static constexpr int ranks_max = domain_ranks_max;

    // connections: of the step machines, equal on all ranks; none: there are no programs to bind.
    Domain(std::shared_ptr<Segment> group, int rank, std::shared_ptr<const KernelSet> kernels, Connections connections);
    ~Domain();

    // Reports an obstacle of this rank, which advance() reports to all ranks. Called before the first step.
    void object(const Status& why) { obstacle_ = why.sentence(); }
    // One step of making the domain; it never blocks. True once all ranks know whether the domain works. A failure is
    // this rank's own, and the caller must report it to the others.
    Result<bool> advance();
    // The ranks that advance() waits for.
    std::vector<int> missing() const;
    // Why the domain does not work, equal on all ranks; empty: it works.
    const std::string& obstacle() const { return obstacle_; }
    // The ends that the proxy serves, in host memory. They have no addresses before the domain works.
    std::vector<RemoteEnd> remote_ends() const;
    const uint32_t* ended() const;  // by block (kernel_arguments.hpp)

    // Sets the arguments that do not change from launch to launch.
    void bind(KernelArguments& arguments) const;
    // Sets a step machine's program, by its number among the connections.
    void bind_program(KernelArguments& arguments, size_t index) const;
    // Sets internal buffers, with a token for each rank's part, for a call without data.
    void bind_tokens(KernelArguments& arguments) const;
    // The same for the kernels of messages and of one-sided calls.
    void bind(MessageArguments& arguments) const;
    void bind(AccessArguments& arguments) const;
    const KernelSet& kernels() const { return *kernels_; }
    // Fails if another rank of this process launches the same operation on the same stream: both would wait for each
    // other. The thread's own stream (CU_STREAM_PER_THREAD) cannot be identified, so it is not checked.
    Status claim(CUstream stream, const StreamFacts& facts);
    // Called before and after each launch: all launches of a rank run in the order of its calls, on any streams,
    // because they use the same flags. `stream` may be CU_STREAM_PER_THREAD, another stream in each thread.
    Status order(CUstream stream, const StreamFacts& facts);
    Status note(CUstream stream, const StreamFacts& facts);
    // The first failure that a kernel has reported. Thread-safe.
    KernelFailure failure() const;
    const FailureReport& report() const { return *report_; }
    // Details of that report if a message kernel made it. Thread-safe.
    const MessageReport& message_report() const;
    // Details of that report if the kernel waited for signals. Thread-safe.
    const SignalReport& signal_report() const;
    // By block, the ranks that message kernels and one-sided kernels wait for. Thread-safe.
    const BlockWait* block_waits() const;
    // Whether a directly launched kernel is still running. Thread-safe.
    bool working() const;
    // Whether launches were captured: their graphs may be replayed at any time. Thread-safe.
    bool captured() const { return captured_.load(std::memory_order_relaxed); }

    uint64_t device_bytes() const { return memory_.bytes() + unused_.bytes(); }
    // Why host memory replaces the device memory of some or all ranks, equal on all ranks; empty: it replaces none.
    const std::string& fallback_reason() const { return fallback_reason_; }
    std::string fallback_text() const;  // ", through host memory to and from ranks 0 and 3"

    // Returns when the directly launched kernels have ended, or two seconds after an abort.
    void finish() const;
    // The rank leaves. Its memory is unused at once if all others have left, or when a later domain of the process
    // retires. It is freed when the process has no domain left, because freeing waits for all work on the device.
    static void retire(std::unique_ptr<Domain> domain);

  private:
    // agreeing: the host's ranks have a result, and wait for those of the other hosts.
    enum class Stage { exporting, reaching, verifying, agreeing, known };
    // Keys of the entries of each stage. A join report has several entries.
    enum OobKey : int { exports, reached = 16, verified = 32, agreed = 48, of_each_way = 64 };
    // How ranks of different processes share memory, in the order of trials. The last two replace device memory by host
    // memory: of the ranks that not all others reach, and of all ranks.
    enum class ShareMethod { ipc, descriptors, some_host, host };

    DomainLayout layout() const;
    // Arguments that message kernels and one-sided kernels have in common.
    template <class Arguments>
    void bind_waiting(Arguments& arguments) const;
    // The size of pinned host memory for other hosts: ends of remote connections, then a RemoteMessageArea per remote
    // rank.
    size_t remote_bytes() const;
    Status export_memory();
    Status export_by_ipc();
    Status export_by_descriptor();
    Status export_host_memory();
    Status begin();
    Status prepare_memory(ExportableMemory::ExportMethod way);
    Status take_memory(ExportableMemory::ExportMethod way);
    Status take_host_reports();
    Status write_probe();
    Status write_programs();
    Result<bool> reach();
    Status verify();
    // Whether all ranks have posted their entry of the stage.
    bool all_have_put(int stage) const;
    // The OOB key of a stage, for the current method.
    uint64_t key(int stage) const;
    const std::byte* find(int peer, int stage) const;  // null: not posted yet
    Status post(int stage, const void* value, size_t bytes);
    Status post_join_report(int stage, const Status& status, bool root, uint64_t unreached);
    Status tell_hosts();
    bool hosts_agree();
    bool leads() const { return rank_ == members_[0]; }
    bool one_process() const;
    static uint64_t bit(int rank) { return uint64_t(1) << unsigned(rank); }
    uint64_t all_members() const;
    std::vector<int> host_backed() const;  // ascending
    // The first obstacle in rank order that a stage has reported. All ranks read the same entries.
    struct Obstacle {
        std::string text;   // empty: no obstacle
        bool root = false;  // a rank could not export anything
    };
    Obstacle first_obstacle(int stage) const;
    // By bit, the ranks whose memory some rank does not reach, as a stage has reported; all ranks if the obstacle is
    // another one.
    uint64_t unreached_in(int stage) const;
    // Ends a stage of the current method: the domain works, or another method is tried, or there is none.
    void conclude(int stage);
    Status refused_by_option(int peer) const;
    Status map(int peer);
    Status map_of_process(int peer);
    Status copy_by_kernel(CUdeviceptr to, CUdeviceptr from);
    Status probe(int peer);
    void withdraw_fds();
    // Unmaps the memory of others, unless kernels of ours may still run. May wait for the device.
    void unmap();
    // Whether we have unmapped the others' memory, and they have unmapped ours or died.
    bool is_unused() const;

    std::shared_ptr<Segment> segment_;
    int rank_, ranks_;
    std::vector<int> members_;      // ranks of this host, ascending
    std::vector<int> other_hosts_;  // the first rank of each, in the order of hosts
    std::vector<int> remote_ranks_;
    std::shared_ptr<const KernelSet> kernels_;
    std::shared_ptr<SharedAbortFlag> shared_abort_flag_;
    std::vector<Context> peer_contexts_;  // of devices in this process whose memory we access
    const uint32_t* abort_ = nullptr;     // the address in this rank's kernels
    PinnedMemory host_reports_;
    PinnedMemory remote_;  // for other hosts; empty with one host
    FailureReport* report_ = nullptr;
    ExportableMemory memory_;
    ExportableMemory unused_;              // of a method that failed: peers may map it until they leave
    std::shared_ptr<FdServer> fd_server_;  // while the memory's entry is posted
    uint64_t fds_id_ = 0;
    SharedMemory host_memory_;                           // of the first rank, for all host-backed ranks
    std::shared_ptr<HostFallbackMemory> host_fallback_;  // the same, for this process's devices
    uint64_t host_backed_ = 0;                           // by bit: the ranks whose device memory is replaced
    std::vector<IpcMapping> mappings_;                   // of other processes' memory, by either method
    std::vector<VmmMemory> imports_;
    std::vector<CUdeviceptr> bases_;  // by rank: the address in this rank's kernels; 0: a remote rank
    Connections connections_;
    Stream stream_;  // for work while joining

    Stage stage_ = Stage::exporting;
    ShareMethod method_ = ShareMethod::ipc;
    std::string obstacle_, fallback_reason_;
    std::string tried_;         // why the earlier methods failed
    std::string not_exported_;  // why this rank exports nothing with this method
    int late_ = -1;             // the rank whose process has not passed its descriptor yet; -1: none
    bool told_ = false;         // the other hosts have our result

    Event done_;           // after the newest direct launch
    Event captured_done_;  // after the newest launch of the capture `capture_`
    uint64_t last_ = 0;    // the id of the stream of the newest direct launch
    uint64_t last_captured_ = 0;
    bool launched_ = false;
    uint64_t claims_ = 0;
    uint64_t capture_ = 0;
    std::atomic<bool> captured_{false};
    bool unmapped_ = false;
};

}  // namespace weft::internal::cuda
