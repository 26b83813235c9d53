// domain_memory.hpp: how the memory of a domain is laid out: what a rank has on its device, alike on all ranks, or on
// the host in its stead, what its kernels see on the host, and the abort word of the segment.
#pragma once
#include "src/drivers/cuda/memory.hpp"
#include "src/gpu/domain/domain.hpp"
#include "src/gpu/kernels/access_arguments.hpp"
#include "src/gpu/kernels/message_arguments.hpp"
#include "src/peer_access/peer_memory.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal::cuda {

// A rank's memory: words, packets, staging, connections, words by which reaching is tested, signals, messages; and behind them,
// on the device whatever else stands in for the rest, the programs of its own kernels, their scratch, what ranks send each other that have nothing
// to send, and a table of messages.
struct ReachProbe {
    uint32_t own;                       // that peers read
    uint32_t from[Domain::ranks_max];   // that peers write
    uint32_t seen[Domain::ranks_max];   // what we have read of peers
    uint32_t given[Domain::ranks_max];  // what we write to peers
};
struct DomainLayout {
    size_t packets, staging, connections, probe, signals, messages, message_slots, programs, scratch, tokens,
        message_table, bytes;
    // several_hosts: fused bodies do not serve, whatever the ranks.
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

// A page of pinned host memory: what kernels report, how far their blocks are, and room for probes.
struct HostReports {
    FailureReport report;
    MessageReport message_report;
    SignalReport signal_report;
    alignas(128) BlockWait block_waits[blocks_max];
    alignas(128) uint32_t ended[blocks_max];
    alignas(256) ReachProbe probe;
};

// Pages of the host, pinned once for all devices of the process; they outlive it.
class PinnedPages {
  public:
    Status pin(const Context& context, void* data, size_t bytes);
    // As kernels of the context that is current address them.
    Result<CUdeviceptr> address() const;

  private:
    Context context_;
    PinnedMemory memory_;
};

// The communicator's abort word, so that kernels of all devices of this process see it at once, whoever sets it. Once
// for a process, which maps the segment once.
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

    // That each rank of this process launched on last, and its how many-th launch that was.
    struct LastLaunch {
        std::atomic<uint64_t> stream{0};  // its id
        std::atomic<uint64_t> launch{0};
    } claims[Domain::ranks_max];

  private:
    std::shared_ptr<Segment> segment_;
    PinnedPages pinned_;
};

// Host memory that stands in for that of the devices, of all ranks of a host: its first's, once for a process.
class HostFallbackMemory {
  public:
    static Result<std::shared_ptr<HostFallbackMemory>> of(const PeerMemory& where, const Context& context);
    Result<CUdeviceptr> address() const { return pinned_.address(); }

  private:
    std::shared_ptr<SharedMemory> memory_;
    PinnedPages pinned_;
};

}  // namespace weft::internal::cuda
