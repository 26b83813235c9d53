// domain_layout.hpp: the layout of a domain's memory, on the device or in host memory that replaces it. The layout is
// equal on all ranks. Also the layout of the host memory that kernels report to. Values.
#pragma once
#include "src/gpu/domain/connections.hpp"
#include "src/gpu/kernels/access_arguments.hpp"
#include "src/gpu/kernels/message_arguments.hpp"

namespace weft::internal::cuda {

// The words by which ranks test that they reach each other's memory.
struct ReachProbe {
    uint32_t own;                     // read by peers
    uint32_t from[domain_ranks_max];  // written by peers
    uint32_t seen[domain_ranks_max];  // the values that this rank has read from peers
    uint32_t to[domain_ranks_max];    // the values that this rank writes to peers
};
// A rank's memory: flags, packets, staging, connections, the reach probe, signals, messages. Behind them, always on the
// device: the programs of its own kernels, their scratch, tokens for calls without data, and a table of messages.
struct DomainLayout {
    // Messages that peers cannot access in place pass through this staging memory of each rank, in tiles.
    static constexpr size_t staging_bytes = size_t(4) << 20;
    static constexpr size_t token_bytes = 8;  // for a part without data: an element of any type

    size_t packets, staging, connections, probe, signals, messages, message_slots, programs, scratch, tokens,
        message_table, bytes;
    // several_hosts: fused bodies are not available.
    DomainLayout(int ranks, bool several_hosts, const Connections& over) {
        const auto line = [](size_t at) { return (at + 255) / 256 * 256; };
        const bool fused = ranks <= cuda::ranks_max && !several_hosts;
        packets = line(sizeof(RankFlags));
        staging = line(packets + (fused ? packet_memory_bytes(ranks) : 0));
        connections = staging + (fused ? staging_bytes : 0);
        probe = connections + over.area_bytes();
        signals = line(probe + sizeof(ReachProbe));
        messages = line(signals + (fused ? signals_bytes(ranks) : 0));
        const MessageGeometry geometry{ranks};
        message_slots = messages + geometry.state_bytes();
        programs = line(messages + geometry.bytes());
        scratch = line(programs + over.program_bytes());
        tokens = line(scratch + over.scratch_bytes());
        message_table = line(tokens + 2 * token_bytes * size_t(ranks));
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

}  // namespace weft::internal::cuda
