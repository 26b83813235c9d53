// domain_layout.hpp: the layout of a domain's memory, on the device or in host memory that replaces it. The layout is
// equal on all ranks. Also the layout of the host memory that kernels report to. Values.
#pragma once
#include "src/gpu/domain/connections.hpp"
#include "src/gpu/kernels/access_arguments.hpp"
#include "src/gpu/kernels/message_arguments.hpp"

namespace weft::internal::cuda {

// The words by which ranks test that they reach each other's memory.
struct ReachProbe {
    uint32_t own;              // read by peers
    uint32_t from[ranks_max];  // written by peers
    uint32_t seen[ranks_max];  // the values that this rank has read from peers
    uint32_t to[ranks_max];    // the values that this rank writes to peers
};
// A rank's memory: flags, packets, connections, the reach probe, signals, messages, staging. The memory before the slots
// of messages is zero when the domain begins. Behind staging, always on the device: the programs of its own kernels,
// their scratch, tokens for calls without data, a table of messages, and a copy of CopyReport's clock.
struct DomainLayout {
    static constexpr size_t token_bytes = 8;  // for a part without data: an element of any type

    // Messages that peers cannot access in place pass through the staging memory of each rank, in tiles of half of it.
    size_t staging_bytes;
    size_t packets, connections, probe, signals, messages, message_slots, staging, programs, scratch, tokens,
        message_table, clock, bytes;
    // several_hosts: fused bodies are not available. staging_wanted: the agreed size.
    DomainLayout(int ranks, bool several_hosts, const Connections& over, int64_t staging_wanted) {
        const auto line = [](size_t at) { return (at + 255) / 256 * 256; };
        const bool fused = !several_hosts;
        staging_bytes = fused ? size_t(staging_wanted) / 256 * 256 : 0;
        packets = line(sizeof(RankFlags));
        connections = line(packets + (fused ? packet_memory_bytes(ranks) : 0));
        probe = connections + over.area_bytes();
        signals = line(probe + sizeof(ReachProbe));
        messages = line(signals + (fused ? signals_bytes(ranks) : 0));
        const MessageGeometry geometry{ranks};
        message_slots = messages + geometry.state_bytes();
        staging = line(messages + geometry.bytes());
        programs = staging + staging_bytes;
        scratch = line(programs + over.program_bytes());
        tokens = line(scratch + over.scratch_bytes());
        message_table = line(tokens + 2 * token_bytes * size_t(ranks));
        clock = line(message_table + sizeof(MessageItem) * message_items_max);
        bytes = clock + sizeof(uint64_t);
    }
};

// The progress of a stream in a call by copy engines, which has no clock and no kernel.
struct CopyReport {
    static constexpr uint32_t copying = UINT32_MAX;
    uint64_t clock_us;     // written by the host, which knows the time
    uint64_t began_us;     // the clock when the wait began; copied by the stream
    uint32_t stage;        // a KernelWait, `copying` between and behind the waits, or nothing: no call runs
    uint32_t fingerprint;  // of the operation
    uint32_t timeout_ms;   // of a wait; 0: never
};

// A page of pinned host memory: reports of kernels, the progress of their blocks, and space for probes.
struct HostReports {
    FailureReport report;
    MessageReport message_report;
    SignalReport signal_report;
    alignas(128) BlockWait block_waits[blocks_max];
    alignas(128) uint32_t ended[blocks_max];
    alignas(256) ReachProbe probe;
    alignas(128) CopyReport copies;
};

}  // namespace weft::internal::cuda
