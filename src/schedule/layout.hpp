// layout.hpp: the ranks as an algorithm sees them, and what moving bytes between them costs. Values; agreed by all
// ranks.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

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
    // All ranks in the order of each channel's ring, channels beyond them from the first again; empty: host_major().
    std::vector<std::vector<int32_t>> ring_orders = {};
    // Between several hosts, where their machines are known. By rank: its rail, the index of the NIC nearest to it among
    // its host's; -1: it has none. By host: the NVLink domain that it is part of with others, numbered by their first
    // host; -1: none. Empty: unknown, or none at all.
    std::vector<int32_t> rails = {}, domains = {};

    int host_of(int of) const { return hosts.empty() ? 0 : hosts[size_t(of)]; }
    int host_count() const { return hosts.empty() ? 1 : int(hosts.by_host().size()); }
    std::vector<int32_t> ranks_of(int host) const;  // ascending
    std::vector<int32_t> local_ranks() const { return ranks_of(host_of(rank)); }
    RanksByHost ranks_by_host() const;
    // All ranks, those of a host side by side: neighbours here share memory wherever they can.
    RankOrder host_major() const;
    int position() const;                                 // of this rank in host_major()
    bool in_blocks() const { return hosts.in_blocks(); }  // host_major() is rank order
    RankOrder ring_order(int channel) const;
    // Where no orders are given it crosses each host's border once in and once out.
    Ring ring(int channel) const;
};

// `ranks` ranks as equal as possible on `hosts` hosts, ranks of a host side by side: what most launchers do.
std::vector<int32_t> hosts_in_blocks(int ranks, int hosts);
Layout layout_in_blocks(int ranks, int hosts, int rank = 0);

// Costs of the links between the ranks, microseconds and microseconds a byte; facts of a machine class, never measured
// at init.
struct LinkCosts {
    int ranks_per_core = 1;                       // rounded up
    double signal_us = 0.12;                      // a flag from one rank seen by another, both running
    static constexpr double far_signal_us = 0.3;  // between cores that share no cache
    double switch_us = 0.95;                      // between two ranks of one core
    double cached_us_per_byte = 1 / 27e3;         // copy or reduce one stream, data in cache
    double memory_us_per_byte = 1 / 15e3;         // the same from and to memory
    size_t cache_bytes = 4 << 20;                 // working set of a rank up to which `cached` holds
    // Of what a pass costs, where it is over as many pieces as a rank has blocks that work at the same time.
    double side_by_side = 1;
    double skew_us = 0.8;           // a further phase: ranks arrive apart, and first misses on what was just written
    double sums_skew = 1;           // so many of them where the phase reads what the one before has summed
    size_t tile_bytes = 128 << 10;  // of the message that one round of an algorithm walks
    double net_latency_us = 12;     // a short message from a rank of one host to a rank of another
    double net_us_per_byte = 1 / 1.2e3;  // of one of a host's links, each direction
    // Links of a host. A rank uses that of its rail (Layout::rails), or, where those are unknown, of its place on its host.
    int net_links = 1;
    bool one_machine = false;  // hosts are processes or containers of one, whose network is its memory
    static constexpr double loopback_latency_us = 5.5,
                            loopback_us_per_byte = 1 / 3.7e3;  // then, if nobody knows better
    double net_message_us = 4;  // of that, what a processor has to do: ranks of one core wait for each other
    double net_far = 1.05;      // a byte to other hosts than the next one: paths inside the network are shared
    // Messages of a host that the receiver reads where they lie, rather than in a slot: below two copies cost less than
    // the way there and back; above, between processes, two cores that each copy half of the way are faster than the
    // kernel, which looks up every page. Measured: perf/results.
    size_t zero_copy_least_bytes = 16 << 10, zero_copy_most_bytes = 2 << 20;
    size_t net_slot_bytes = 256 << 10;  // of a connection: what a message can hold
    bool net_by_kernels = false;  // who writes slots and reads them; a thread's sockets go past them where they can
    // By which algorithms cut tiles, where these costs were fitted to times of tiles cut so; null: by these.
    std::shared_ptr<const LinkCosts> cut_by = nullptr;
    const LinkCosts& cutting() const { return cut_by ? *cut_by : *this; }

    // All ranks meet: a flag is seen, after each rank of a core had its turn.
    double meeting_us() const { return signal_us + (ranks_per_core - 1) * switch_us; }
    double sums_skew_us() const { return sums_skew * skew_us; }
    // One pass over `bytes` by every rank, those of a core one after the other. `working_bytes`: what the algorithm
    // touches.
    double stream_us(size_t bytes, size_t working_bytes) const {
        return double(bytes) * ranks_per_core *
               (working_bytes <= cache_bytes ? cached_us_per_byte : memory_us_per_byte);
    }
    // Passes over a message of a host's: a copy by the kernel, which ranks of one core make one after the other from
    // what is no longer in its cache; or two.
    double message_streams(size_t bytes) const {
        if (bytes < zero_copy_least_bytes || bytes > zero_copy_most_bytes) return 2;
        return ranks_per_core > 1 ? 1.5 : 1.3;
    }
    size_t tiles(size_t bytes) const { return std::max<size_t>(1, bytes / tile_bytes + (bytes % tile_bytes != 0)); }
};

}  // namespace weft::internal
