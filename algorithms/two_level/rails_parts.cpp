// Two-level collectives with a part per rank, over connections only (rails.cpp has all-reduce and defines a rail). All
// hosts have the same number of ranks.
// All-gather: each rail carries its own parts between hosts, and each rank sends what arrives to the others of its
// host. Reduce-scatter reverses this, with sums. All-to-all: a rank first sends each other rank of its host the parts
// for that rank's rail, so that the parts for another host form one message.
// Each byte crosses a host's border once. A rank sends H-1 messages to other hosts, where all pairs needs N-L.
// Source: Cho et al., "BlueConnect: decomposing all-reduce for deep learning on heterogeneous network hierarchy", 2019;
// Traeff and Rougier, "MPI collectives and datatypes for hierarchical all-to-all communication", 2014.
#include <algorithm>
#include <climits>
#include <utility>

#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "algorithms/patterns.hpp"
#include "algorithms/two_level/two_level.hpp"

namespace weft::internal {

namespace {

// One slot is enough. With two, the next tile travels while the receiver processes this one.
constexpr int rails_parts_fifo_depth = 2;

constexpr Parameters one_rail_channel = {.channels = 1};

// With each other rank of this host, in turns: calls emit(block, place).
template <class Emit>
void each_beside(const Grid& grid, Builder& schedule, Emit&& emit) {
    for (const int place : others_in_turns(grid.hosts.place, grid.columns)) {
        const int peer = grid.rank_at(grid.hosts.host, place);
        emit(schedule.block({.source = peer, .target = peer}), place);
    }
}

Builder of_rails(const char* name, Collective collective, const Layout& layout, int channels, int span = 1) {
    return {name,
            collective,
            layout,
            {.channels = channels, .chunks = layout.ranks, .fifo_depth = rails_parts_fifo_depth, .span = span}};
}

Schedule gather_along_rails(const TwoLevel& levels, const Layout& layout) {
    const Grid grid(layout);
    const Schedule inner = levels.between_hosts(layout_of_hosts(layout), one_rail_channel);
    Builder schedule = of_rails(levels.name, Collective::all_gather, layout, inner.channels);
    std::vector<Dependency> ends = grid.of_column(inner, Buffer::input, Buffer::scratch).emit(schedule);
    // The own part is sent directly from the input.
    std::erase_if(ends, [&](const Dependency& end) { return !schedule.receives(end.block); });
    // A block both sends and receives; otherwise both ranks would wait for a slot.
    const auto exchange = [&](BlockBuilder& block, int row, int place, Buffer from) {
        StepBuilder sent = block.send({grid.rank_at(row, grid.hosts.place)}).from(from);
        block.recv({grid.rank_at(row, place)});
        return sent;
    };
    JoinedSteps come(std::move(ends));
    each_beside(grid, schedule, [&](BlockBuilder block, int place) {
        exchange(block, grid.hosts.host, place, Buffer::input);
        for (int distance = 1; distance < grid.rows; ++distance) {
            const int row = (grid.hosts.host + distance) % grid.rows;
            const Dependency ready = distance == 1 ? come.in(block) : Dependency();
            exchange(block, row, place, Buffer::output).after(ready);
        }
    });
    return schedule.finish();
}

Schedule scatter_along_rails(const TwoLevel& levels, const Layout& layout) {
    const Grid grid(layout);
    const Schedule inner = levels.between_hosts(layout_of_hosts(layout), one_rail_channel);
    Builder schedule = of_rails(levels.name, Collective::reduce_scatter, layout, inner.channels);
    // The host's sums lie in scratch, which is overwritten when all of the previous tile has been sent.
    const Embedding embedding = grid.of_column(inner, Buffer::scratch, Buffer::scratch);
    Gate gate(embedding.ends());
    std::vector<StepBuilder> sums;  // by row
    each_beside(grid, schedule, [&](BlockBuilder block, int place) {
        const bool first = sums.empty();
        for (int row = 0; row < grid.rows; ++row) {
            block.send({grid.rank_at(row, place)});
            const Chunk own{grid.rank_at(row, grid.hosts.place)};
            if (first) {
                sums.push_back(gate.pass(block, [&] { return block.recv_reduce_copy(own).to(Buffer::scratch); }));
            } else {
                StepBuilder sum = block.recv_reduce_copy(own).from(Buffer::scratch).to(Buffer::scratch);
                sums[size_t(row)] = sum.after(sums[size_t(row)]);
            }
        }
    });
    gate.after(embedding.emit(schedule, sums.back().dependency()), 1);
    return schedule.finish();
}

constexpr TwoLevel gather_by_rings = {"rail_ring", ring_all_gather, ring_all_gather_us, INT_MAX};
constexpr TwoLevel gather_by_pairs = {"rail_all_pairs", all_pairs_all_gather, all_pairs_gathered_us, INT_MAX};
constexpr TwoLevel scatter_by_rings = {"rail_ring", ring_reduce_scatter, ring_reduce_scatter_us, INT_MAX};
constexpr TwoLevel scatter_by_pairs = {"rail_all_pairs", all_pairs_reduce_scatter, all_pairs_reduce_scatter_us,
                                       INT_MAX};
constexpr TwoLevel exchange_by_rails = {"rail_all_pairs", nullptr, all_pairs_gathered_us, INT_MAX};

double share_of_rail(const Layout& layout) { return double(layout.host_count()) / layout.ranks; }

// The cost of the parts for, or from, the other ranks of the host.
struct Beside {
    double latency_us, handling_us;
    Beside(const Network& network, const LinkCosts& costs, size_t bytes, double passes) {
        const double ranks = network.ranks_a_host(), others = ranks - 1;
        // Each pair of ranks exchanges a message per host in each direction, one after the other; tiles or sums are
        // pipelined from turn to turn.
        const double messages = others * network.hosts();
        // A thread handles both ends of a message; of a kernel's blocks one sends while another receives.
        const double ends = costs.net_by_kernels ? 1 : 2;
        latency_us = network.message_us(false) + others * costs.signal_us / 2 +
                     messages * (ends * costs.signal_us * costs.side_by_side + network.turns_us());
        handling_us = passes * costs.stream_us(size_t(double(bytes) * others / ranks), 2 * bytes);
    }
};

// `in_a_rail`: the share of the buffer.
double rail_us(const TwoLevel& levels, const Layout& layout, const LinkCosts& costs, size_t bytes, double in_a_rail) {
    return between_hosts_us(levels, layout, costs, size_t(double(bytes) * in_a_rail),
                            Network(layout, costs, bytes).ranks_a_host());
}
double gathered_us(const TwoLevel& levels, const Layout& layout, const LinkCosts& costs, size_t bytes) {
    const Beside beside(Network(layout, costs, bytes), costs, bytes, 2 * costs.side_by_side);
    return beside.latency_us + overlapped_us(beside.handling_us,
                                             rail_us(levels, layout, costs, bytes, share_of_rail(layout)), costs,
                                             bytes);
}
// Through scratch, which belongs to one tile until it is sent, in this many rounds.
double through_scratch_us(const TwoLevel& levels, const Layout& layout, const LinkCosts& costs, size_t bytes,
                          double passes, double in_a_rail, int rounds) {
    const Network network(layout, costs, bytes);
    const Beside beside(network, costs, bytes, passes);
    const double tiles = double(costs.tiles(bytes));
    return tiles * beside.latency_us + beside.handling_us + rail_us(levels, layout, costs, bytes, in_a_rail) +
           (tiles - 1) * rounds * network.message_us(true);
}
double scattered_us(const TwoLevel& levels, const Layout& layout, const LinkCosts& costs, size_t bytes, int rounds) {
    // Sums are pipelined from block to block, one for each host.
    const double summing = std::max(costs.side_by_side, 1.0 / layout.host_count());
    return through_scratch_us(levels, layout, costs, bytes, 2 * summing + costs.side_by_side, share_of_rail(layout),
                              rounds);
}

}  // namespace

Schedule rail_ring_all_gather(const Layout& layout, const Parameters&) {
    return gather_along_rails(gather_by_rings, layout);
}
Schedule rail_all_pairs_all_gather(const Layout& layout, const Parameters&) {
    return gather_along_rails(gather_by_pairs, layout);
}
Schedule rail_ring_reduce_scatter(const Layout& layout, const Parameters&) {
    return scatter_along_rails(scatter_by_rings, layout);
}
Schedule rail_all_pairs_reduce_scatter(const Layout& layout, const Parameters&) {
    return scatter_along_rails(scatter_by_pairs, layout);
}

Schedule rail_all_pairs_all_to_all(const Layout& layout, const Parameters&) {
    const Grid grid(layout);
    Builder schedule = of_rails("rail_all_pairs", Collective::all_to_all, layout, 1, grid.columns);
    const int row = grid.hosts.host, column = grid.hosts.place;
    // The parts for the ranks at our position on other hosts: from all ranks here, packed in scratch. The last block
    // waits at its end until a whole tile is sent. No block writes scratch for the next tile before that.
    const int own_block = grid.columns - 1;
    const Dependency sent_before{own_block, 2 * (grid.rows - 1), 1};
    const auto there = [&](int distance) { return (row + distance) % grid.rows; };
    std::vector<std::vector<Dependency>> gathered(static_cast<size_t>(grid.rows));  // by distance
    each_beside(grid, schedule, [&](BlockBuilder block, int place) {
        block.send({grid.rank_at(row, place)});
        block.recv({grid.rank_at(row, place)});
        for (int distance = 1; distance < grid.rows; ++distance) {
            block.send({grid.rank_at(there(distance), place)});
            StepBuilder taken = block.recv({grid.rank_at(there(distance), place)}).to(Buffer::scratch);
            if (distance == 1) taken.after(sent_before);
            gathered[size_t(distance)].push_back(taken.dependency());
        }
    });
    BlockBuilder own = schedule.block({});
    own.copy({grid.rank});
    for (int distance = 1; distance < grid.rows; ++distance)
        gathered[size_t(distance)].push_back(
            own.copy({grid.rank_at(there(distance), column)}).to(Buffer::scratch).dependency());
    for (int distance = 1; distance < grid.rows; ++distance) {
        const int peer = grid.rank_at(there(distance), column);
        BlockBuilder block = schedule.block({.source = peer, .target = peer});
        const Chunk all{grid.rank_at(there(distance), 0)};
        StepBuilder sent = after_all(block, gathered[size_t(distance)],
                                     [&] { return block.span(grid.columns).send(all).from(Buffer::scratch); });
        block.span(grid.columns).recv(all);
        own.nop().after(sent);
    }
    return schedule.finish();
}

double rail_ring_all_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return gathered_us(gather_by_rings, layout, costs, bytes);
}
double rail_all_pairs_all_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return gathered_us(gather_by_pairs, layout, costs, bytes);
}
double rail_ring_reduce_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return scattered_us(scatter_by_rings, layout, costs, bytes, layout.host_count() - 1);
}
double rail_all_pairs_reduce_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return scattered_us(scatter_by_pairs, layout, costs, bytes, 1);
}
double rail_all_pairs_all_to_all_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return through_scratch_us(exchange_by_rails, layout, costs, bytes, 2 * costs.side_by_side, 1, 1);
}

const char* no_rails_of_parts(const Layout& layout) {
    if (const char* refusal = no_grid(layout)) return refusal;
    return no_rails(layout);
}
const char* no_rails_of_pairs(const Layout& layout) {
    if (const char* refusal = no_rails_of_parts(layout)) return refusal;
    return too_many_pairs(layout_of_hosts(layout));
}

}  // namespace weft::internal
