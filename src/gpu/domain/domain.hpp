// domain.hpp: what a rank has of a communicator on devices: device memory that all ranks of its host map into each
// other's kernels, host words that the kernels see, and the order of its launches. The ranks of a host make it together
// when they join, with a test whether each really reaches each; then hosts tell each other. It serves all ranks or
// none.
//
// Ownership: the memory is the rank's own. Peers write it until their kernels have ended and unmap it when they leave,
// so a rank that leaves hands its domain over (retire()), and it is spare when every other rank has left or is dead.
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

// Thread-bound to the rank, but for what says otherwise.
class Domain {
  public:
    // Of each rank: messages that peers cannot reach pass through it in tiles of this size.
    static constexpr size_t staging_bytes = size_t(4) << 20;
    static constexpr size_t token_bytes = 8;  // of a part that has none: an element of any type

    // Of all hosts: each maps the memory of each, or has connections to it; fused bodies know fewer
    // (kernel_arguments.hpp).
    static constexpr int ranks_max = domain_ranks_max;

    // connections: of step machines, the same on all ranks; none: there are no programs to bind.
    Domain(std::shared_ptr<Segment> group, int rank, std::shared_ptr<const KernelSet> kernels, Connections connections);
    ~Domain();

    // Before the first step: this rank has an obstacle of its own, which shall be told to all.
    void object(const Status& why) { obstacle_ = why.sentence(); }
    // One step of making it; waits for nobody. True once all ranks know whether it serves. A failure is this rank's
    // own, and the others are to be told.
    Result<bool> advance();
    // Ranks whose part advance() waits for.
    std::vector<int> missing() const;
    // Why it does not serve, the same on all ranks; empty: it does.
    const std::string& obstacle() const { return obstacle_; }
    // What the proxy needs, in the host's memory; without addresses until it serves.
    std::vector<RemoteEnd> remote_ends() const;
    const uint32_t* ended() const;  // by block (kernel_arguments.hpp)

    // What does not change from launch to launch.
    void bind(KernelArguments& arguments) const;
    // And a step machine's program, by its number among the connections.
    void bind_program(KernelArguments& arguments, size_t index) const;
    // Buffers of Weft's own, of a token for each rank's part, for a call that has none.
    void bind_tokens(KernelArguments& arguments) const;
    // Of the kernels of messages and of one-sided calls likewise.
    void bind(MessageArguments& arguments) const;
    void bind(AccessArguments& arguments) const;
    const KernelSet& kernels() const { return *kernels_; }
    // Where several ranks of this process are on one device: two that launch the same operation on one stream wait for
    // each other. Of the thread's own stream it cannot be told which that is.
    Status claim(CUstream stream, const StreamFacts& facts);
    // Before and after each launch on `stream`: launches of one rank run in the order of its calls whatever streams
    // they are on, for they use the same words. `stream` is no handle that names different streams.
    Status order(CUstream stream, const StreamFacts& facts);
    Status note(CUstream stream, const StreamFacts& facts);
    // The first failure that a kernel has reported, if any. Thread-safe.
    KernelFailure failure() const;
    const FailureReport& report() const { return *report_; }
    // Beside it, if it is of a kernel of messages. Thread-safe.
    const MessageReport& message_report() const;
    // Likewise of one that waited for signals.
    const SignalReport& signal_report() const;
    // By block, whom kernels of messages and of one-sided calls wait for. Thread-safe.
    const BlockWait* block_waits() const;
    // Whether a kernel that was launched directly has not ended. Thread-safe.
    bool working() const;
    // Whether launches were captured, whose graphs may be replayed at any time. Thread-safe.
    bool captured() const { return captured_.load(std::memory_order_relaxed); }

    uint64_t device_bytes() const { return memory_.bytes() + unused_.bytes(); }
    // Why host memory stands in for that of some ranks' devices or of all, the same on all ranks; empty: for none's. And
    // which way kernels go then: ", through host memory to and from ranks 0 and 3".
    const std::string& fallback_reason() const { return fallback_reason_; }
    std::string fallback_text() const;

    // Returns when the kernels that were launched directly have ended; after an abort it waits two seconds at most.
    void finish() const;
    // The rank leaves: its memory is spare, at once if all others have left as well, or when a later domain of the
    // process retires. It is freed when the process has no domain left, for that waits for what runs on the device.
    static void retire(std::unique_ptr<Domain> domain);

  private:
    // agreeing: the host's ranks have come to an end, and hear those of other hosts.
    enum class Stage { exporting, reaching, verifying, agreeing, known };
    // Entries of the stages; a join report's are several.
    enum OobKey : int { exports, reached = 16, verified = 32, agreed = 48, of_each_way = 64 };
    // How ranks of different processes reach each other's memory, in the order in which it is tried; then host memory in
    // the place of that of the ranks which not all reach, and of all.
    enum class ShareMethod { ipc, descriptors, some_host, host };

    DomainLayout layout() const;
    // What kernels of messages and of one-sided calls have in common.
    template <class Arguments>
    void bind_waiting(Arguments& arguments) const;
    // Of pinned host memory: ends of remote connections, then a RemoteMessageArea for each rank there.
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
    // Of the way that is being tried.
    uint64_t key(int stage) const;
    const std::byte* find(int peer, int stage) const;  // null until it is there
    Status post(int stage, const void* value, size_t bytes);
    Status post_join_report(int stage, const Status& status, bool root, uint64_t unreached);
    Status tell_hosts();
    bool hosts_agree();
    bool leads() const { return rank_ == members_[0]; }
    bool one_process() const;
    static uint64_t bit(int rank) { return uint64_t(1) << unsigned(rank); }
    uint64_t all_members() const;
    std::vector<int> host_backed() const;  // ascending
    // What the first rank in order has met in a stage; all ranks read the same entries.
    struct Obstacle {
        std::string text;   // empty: nothing is in the way
        bool root = false;  // a rank could not export anything
    };
    Obstacle first_obstacle(int stage) const;
    // Of the ranks, by bit, whose memory not all reach, as a stage has shown; all, where something else is in the way.
    uint64_t unreached_in(int stage) const;
    // After a stage of the way that is tried: nothing is in the way, another way is tried, or there is none.
    void conclude(int stage);
    Status refused_by_option(int peer) const;
    Status map(int peer);
    Status map_of_process(int peer);
    Status copy_by_kernel(CUdeviceptr to, CUdeviceptr from);
    Status probe(int peer);
    void withdraw_fds();
    // What is others', unless kernels of ours may still run. May wait for the device.
    void unmap();
    // We have unmapped what is others', and they what is ours, or they are dead.
    bool is_unused() const;

    std::shared_ptr<Segment> segment_;
    int rank_, ranks_;
    std::vector<int> members_;      // ranks of this host, ascending
    std::vector<int> other_hosts_;  // the first rank of each, in the hosts' order
    std::vector<int> remote_ranks_;
    std::shared_ptr<const KernelSet> kernels_;
    std::shared_ptr<SharedAbortFlag> shared_abort_flag_;
    std::vector<Context> peer_contexts_;  // of devices in this process whose memory we reach
    const uint32_t* abort_ = nullptr;     // as this rank's kernels address it
    PinnedMemory host_reports_;
    PinnedMemory remote_;  // what goes to other hosts; none where there is one host
    FailureReport* report_ = nullptr;
    ExportableMemory memory_;
    ExportableMemory unused_;              // of a way that did not serve: peers may map it until they leave
    std::shared_ptr<FdServer> fd_server_;  // while the memory's entry is posted
    uint64_t fds_id_ = 0;
    SharedMemory host_memory_;                           // the first rank's: of all ranks that are host-backed
    std::shared_ptr<HostFallbackMemory> host_fallback_;  // the same, for this process's devices
    uint64_t host_backed_ = 0;                           // by bit: ranks for whose devices' memory it stands in
    std::vector<IpcMapping> mappings_;                   // of other processes' memory; or
    std::vector<VmmMemory> imports_;
    std::vector<CUdeviceptr> bases_;  // by rank: its memory, as this rank's kernels address it; 0 remote
    Connections connections_;
    Stream stream_;  // for what is done while joining

    Stage stage_ = Stage::exporting;
    ShareMethod method_ = ShareMethod::ipc;
    std::string obstacle_, fallback_reason_;
    std::string tried_;         // why the ways before did not serve
    std::string not_exported_;  // why this rank has nothing to export on this way
    int late_ = -1;             // whose process has not handed out its descriptor yet; -1: nobody's
    bool told_ = false;         // other hosts

    Event done_;           // after the newest direct launch
    Event captured_done_;  // after the newest of the capture `capture_`
    uint64_t last_ = 0;    // stream, by id, and of the capture
    uint64_t last_captured_ = 0;
    bool launched_ = false;
    uint64_t claims_ = 0;
    uint64_t capture_ = 0;
    std::atomic<bool> captured_{false};
    bool unmapped_ = false;
};

}  // namespace weft::internal::cuda
