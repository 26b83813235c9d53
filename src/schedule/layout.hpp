// layout.hpp: the ranks as an algorithm sees them, and the costs of moving bytes between them. Values that all ranks
// have agreed on.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "src/peer_access/limits.hpp"
#include "src/schedule/rank_order.hpp"

namespace weft::internal {

struct Ring {
    int position;  // of this rank on the ring
    int previous;  // rank
    int next;      // rank
};

struct Layout {
    int ranks = 1;
    int rank = 0;
    HostsByRank hosts = {};  // by rank: its host; hosts are numbered by their lowest rank; empty: one host
    // All ranks in the order of each channel's ring. More channels begin again with the first order. Empty:
    // host_major().
    std::vector<std::vector<int32_t>> ring_orders = {};
    // For several hosts with known machines. By rank: its rail, the index of the nearest NIC of its host; -1: it has
    // none. By host: the NVLink domain that it shares with other hosts, numbered by the first host; -1: none. Empty:
    // unknown or none.
    std::vector<int32_t> rails = {}, domains = {};

    int host_of(int of) const { return hosts.empty() ? 0 : hosts[size_t(of)]; }
    int host_count() const { return hosts.empty() ? 1 : int(hosts.by_host().size()); }
    std::vector<int32_t> ranks_of(int host) const;  // ascending
    std::vector<int32_t> local_ranks() const { return ranks_of(host_of(rank)); }
    RanksByHost ranks_by_host() const;
    // All ranks, with the ranks of a host next to each other, so that neighbours share memory where possible.
    RankOrder host_major() const;
    int position() const;                                 // of this rank in host_major()
    bool in_blocks() const { return hosts.in_blocks(); }  // host_major() is rank order
    RankOrder ring_order(int channel) const;
    // Without given orders, the ring crosses the border of each host once in and once out.
    Ring ring(int channel) const;
};

// Divides `ranks` ranks as equally as possible among `hosts` hosts, with consecutive ranks on a host, as most launchers
// do.
std::vector<int32_t> hosts_in_blocks(int ranks, int hosts);
Layout layout_in_blocks(int ranks, int hosts, int rank = 0);

// Costs of the links between the ranks, in microseconds and microseconds a byte. They are constants of a class of
// machines and are not measured at init.
struct LinkCosts {
    int ranks_per_core = 1;                       // rounded up
    double signal_us = 0.12;                      // a flag from one rank seen by another, both running
    static constexpr double far_signal_us = 0.3;  // between cores that share no cache
    double switch_us = 0.95;                      // between two ranks of one core
    double cached_us_per_byte = 1 / 27e3;         // one stream of copies or reductions, data in cache
    double memory_us_per_byte = 1 / 15e3;         // the same, from and to memory
    size_t cache_bytes = 4 << 20;                 // working set of a rank for which `cached` holds
    // The factor of a pass over as many pieces as a rank has parallel blocks.
    double side_by_side = 1;
    // of each further phase: ranks arrive at different times, and the first reads of new data miss
    double skew_us = 0.8;
    double sums_skew = 1;                // multiple of it for a phase that reads the sums of the phase before
    size_t tile_bytes = 128 << 10;       // of the message: one round of an algorithm
    double net_latency_us = 12;          // a short message from a rank of one host to a rank of another
    double net_us_per_byte = 1 / 1.2e3;  // of one link of a host, each direction
    // Links of a host. A rank uses the link of its rail (Layout::rails) or, if rails are unknown, of its place on its
    // host.
    int net_links = 1;
    bool one_machine = false;  // hosts are processes or containers of one machine, whose network is its memory
    static constexpr double loopback_latency_us = 5.5,
                            loopback_us_per_byte = 1 / 3.7e3;  // then used, unless measured
    double net_message_us = 4;  // processor time of it: ranks on one core wait for each other
    // factor for a byte to other hosts than the next one, because paths inside the network are shared
    double net_far = 1.05;
    // Messages within a host that the receiver reads from the sender's memory in place of a slot; the upper limit is of
    // CMA between processes.
    static constexpr size_t zero_copy_least_bytes = peer_limits::zero_copy_least;
    size_t zero_copy_most_bytes = peer_limits::cma_message_most;
    size_t net_slot_bytes = 256 << 10;  // of a connection: the most of one message
    bool net_by_kernels = false;  // CPU kernels write and read slots; the sockets of a thread avoid them where possible
    // The costs by which algorithms cut tiles, if these costs were fitted to times of tiles cut so. Null: these costs.
    std::shared_ptr<const LinkCosts> cut_by = nullptr;
    const LinkCosts& cutting() const { return cut_by ? *cut_by : *this; }

    // A barrier of all ranks: a flag is seen, after each rank of a core had its turn.
    double meeting_us() const { return signal_us + (ranks_per_core - 1) * switch_us; }
    double sums_skew_us() const { return sums_skew * skew_us; }
    // One pass over `bytes` by every rank; ranks of one core run one after the other. `working_bytes`: bytes that the
    // algorithm accesses.
    double stream_us(size_t bytes, size_t working_bytes) const {
        return double(bytes) * ranks_per_core *
               (working_bytes <= cache_bytes ? cached_us_per_byte : memory_us_per_byte);
    }
    // Passes over a message within a host. One, if the kernel copies; ranks of one core do that in turn, with cold
    // caches. Two otherwise.
    double message_streams(size_t bytes) const {
        if (bytes < zero_copy_least_bytes || bytes > zero_copy_most_bytes) return 2;
        return ranks_per_core > 1 ? 1.5 : 1.3;
    }
    size_t tiles(size_t bytes) const { return std::max<size_t>(1, bytes / tile_bytes + (bytes % tile_bytes != 0)); }
};

}  // namespace weft::internal
