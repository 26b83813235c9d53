// domain_memory.hpp: the layout of a domain's memory, on the device or in host memory that replaces it. The layout is
// equal on all ranks. Also the host memory that kernels report to, and the segment's abort flag.
#pragma once
#include "src/drivers/cuda/memory.hpp"
#include "src/gpu/domain/domain.hpp"
#include "src/gpu/kernels/access_arguments.hpp"
#include "src/gpu/kernels/message_arguments.hpp"
#include "src/peer_access/peer_memory.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal::cuda {

// A rank's memory: flags, packets, staging, connections, the reach probe, signals, messages. Behind them, always on the
// device: the programs of its own kernels, their scratch, tokens for calls without data, and a table of messages.
struct ReachProbe {
    uint32_t own;                       // read by peers
    uint32_t from[Domain::ranks_max];   // written by peers
    uint32_t seen[Domain::ranks_max];   // the values that this rank has read from peers
    uint32_t given[Domain::ranks_max];  // the values that this rank writes to peers
};
struct DomainLayout {
    size_t packets, staging, connections, probe, signals, messages, message_slots, programs, scratch, tokens,
        message_table, bytes;
    // several_hosts: fused bodies are not available.
    DomainLayout(int ranks, bool several_hosts, const Connections& over) {
        const auto line = [](size_t at) { return (at + 255) / 256 * 256; };
        const bool fused = ranks <= cuda::ranks_max && !several_hosts;
        packets = line(sizeof(RankFlags));
        staging = line(packets + (fused ? packet_memory_bytes(ranks) : 0));
        connections = staging + (fused ? Domain::staging_bytes : 0);
        probe = connections + over.area_bytes();
        signals = line(probe + sizeof(ReachProbe));
        messages = line(signals + (fused ? signals_bytes(ranks) : 0));
        const MessageGeometry geometry{ranks};
        message_slots = messages + geometry.state_bytes();
        programs = line(messages + geometry.bytes());
        scratch = line(programs + over.program_bytes());
        tokens = line(scratch + over.scratch_bytes());
        message_table = line(tokens + 2 * Domain::token_bytes * size_t(ranks));
        bytes = message_table + sizeof(MessageItem) * message_items_max;
    }
};

// A page of pinned host memory: reports of kernels, the progress of their blocks, and space for probes.
struct HostReports {
    FailureReport report;
    MessageReport message_report;
    SignalReport signal_report;
    alignas(128) BlockWait block_waits[blocks_max];
    alignas(128) uint32_t ended[blocks_max];
    alignas(256) ReachProbe probe;
};

// Pages of the host, pinned once for all devices of the process. The pages must outlive this owner.
class PinnedPages {
  public:
    Status pin(const Context& context, void* data, size_t bytes);
    // The address in kernels of the current context.
    Result<CUdeviceptr> address() const;

  private:
    Context context_;
    PinnedMemory memory_;
};

// The communicator's abort flag, mapped for the kernels of all devices of this process. One per process, which maps the
// segment once.
class SharedAbortFlag {
  public:
    static Result<std::shared_ptr<SharedAbortFlag>> of(const std::shared_ptr<Segment>& group, const Context& context);
    Result<const uint32_t*> abort() const {
        static_assert(sizeof(AbortRecord::state) == sizeof(uint32_t));
        auto address = pinned_.address();
        if (!address) return address.take_status();
        return reinterpret_cast<const uint32_t*>(*address + offsetof(SegmentHeader, abort) +
                                                 offsetof(AbortRecord, state));
    }

    // The last launch of each rank of this process: its stream, and its number among the rank's launches.
    struct LastLaunch {
        std::atomic<uint64_t> stream{0};  // its id
        std::atomic<uint64_t> launch{0};
    } claims[Domain::ranks_max];

  private:
    std::shared_ptr<Segment> segment_;
    PinnedPages pinned_;
};

// Host memory that replaces the device memory of ranks of a host. It belongs to the host's first rank. One per process.
class HostFallbackMemory {
  public:
    static Result<std::shared_ptr<HostFallbackMemory>> of(const PeerMemory& where, const Context& context);
    Result<CUdeviceptr> address() const { return pinned_.address(); }

  private:
    std::shared_ptr<SharedMemory> memory_;
    PinnedPages pinned_;
};

}  // namespace weft::internal::cuda
