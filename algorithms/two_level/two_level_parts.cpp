// Two-level collectives with a part per rank. There are two ways between hosts.
// By columns: all hosts have the same number of ranks, and the ranks at one position of every host form a column.
// Columns work in parallel, each on its own parts. In all-gather the columns come first, and the flag block distributes
// what arrives. In reduce-scatter the flag block sums first, each rank its column's parts. Each byte crosses a host's
// border once, in as many messages as a host has ranks.
// By leaders: one rank of each host carries the parts of all its ranks in one message: the fewest messages, for short
// ones. Hosts may differ in size.
// In an all-to-all the flag block packs the parts of a host's ranks for one remote rank into one message: H-1 messages
// in place of N-L.
// Source: Traeff and Rougier, "MPI collectives and datatypes for hierarchical all-to-all communication", 2014, for the
// decomposition.
// Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize collective operation performance",
// 2000, for leaders.
#include <climits>

#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "algorithms/two_level/two_level.hpp"

namespace weft::internal {

namespace {

// One slot is enough. With two, the next tile travels while the receiver processes this one.
constexpr int two_level_parts_fifo_depth = 2;

constexpr Parameters one_channel = {.channels = 1};

// Stages all parts that other ranks of this host sum or forward.
StepBuilder stage_others(const Grid& grid, BlockBuilder& block) {
    return block.loop(grid.rows).span(grid.columns - 1).copy(grid.down(grid.hosts.place + 1)).to(Buffer::slot);
}

// A leader of each host, its first rank, and the parts of each host's ranks, which are numbered host by host.
struct Led {
    explicit Led(const Layout& layout)
        : hosts(layout), rank(layout.rank), ranks(layout.ranks), own(hosts.local()), leader(own[0]) {}

    Hosts hosts;
    int rank, ranks;
    std::vector<int32_t> own;  // this host's ranks
    int leader;
    bool leads() const { return rank == leader; }
    Embedding of_leaders(const Schedule& inner, Buffer input, Buffer output, Buffer scratch) const {
        Embedding::EmbeddingMap where{hosts.column(0), {}, ranks, input, output, scratch};
        for (int host = 0; host < hosts.count(); ++host)
            where.chunks.push_back({hosts[host][0], int(hosts[host].size())});
        return {inner, where};
    }
    Builder builder(const TwoLevel& levels, Collective collective, const Layout& layout, const Schedule& inner) const {
        std::vector<int> counts;
        for (int host = 0; host < hosts.count(); ++host) counts.push_back(int(hosts[host].size()));
        return {levels.name,
                collective,
                layout,
                {.channels = inner.channels,
                 .chunks = ranks,
                 .fifo_depth = inner.fifo_depth,
                 .span = largest_span(counts, inner.span),
                 .shared_ranks = own}};
    }
};

Builder of_columns(const TwoLevel& levels, Collective collective, const Layout& layout, const Schedule& inner) {
    return {levels.name,
            collective,
            layout,
            {.channels = inner.channels,
             .chunks = layout.ranks,
             .fifo_depth = inner.fifo_depth,
             .span = inner.span,
             .shared_ranks = layout.local_ranks()}};
}

Schedule gather_columns(const TwoLevel& levels, const Layout& layout) {
    const Grid grid(layout);
    const Schedule inner = levels.between_hosts(layout_of_hosts(layout), one_channel);
    Builder schedule = of_columns(levels, Collective::all_gather, layout, inner);
    const auto ends = grid.of_column(inner, Buffer::input, Buffer::scratch).emit(schedule);
    BlockBuilder local_phase = schedule.block({});
    local_phase.copy({grid.rank}).to(Buffer::slot);
    after_all(local_phase, ends, [&] {
        return local_phase.loop(grid.rows - 1)
            .copy(grid.down(grid.hosts.place, grid.hosts.host + 1))
            .from(Buffer::output)
            .to(Buffer::slot);
    });
    local_phase.post(entry);
    local_phase.wait(entry);
    for (int next = 1; next < grid.columns; ++next) {
        const int column = (grid.hosts.place + next) % grid.columns;
        local_phase.loop(grid.rows).copy(grid.down(column)).from(Buffer::slot).of({grid.hosts.local()[size_t(column)]});
    }
    return schedule.finish();
}

Schedule gather_by_leaders(const TwoLevel& levels, const Layout& layout) {
    const Led led(layout);
    const Schedule inner = levels.between_hosts(layout_of_hosts(layout), one_channel);
    Builder schedule = led.builder(levels, Collective::all_gather, layout, inner);
    if (led.own.size() == 1) {
        led.of_leaders(inner, Buffer::input, Buffer::output, Buffer::scratch).emit(schedule);
        return schedule.finish();
    }
    BlockBuilder entries = schedule.block({}), results = schedule.block({});
    StepBuilder staged = entries.copy({led.rank}).to(Buffer::slot);
    entries.post(entry);
    StepBuilder gathered = entries.copy({led.rank});
    entries.wait(entry);
    for (const int32_t other : led.own)
        if (other != led.rank) gathered = entries.copy({other}).from(Buffer::slot).of({other});
    // The parts of other hosts, cyclically from the end of ours on.
    const int local = int(led.own.size());
    const Chunk remote{0, led.leader + local, led.ranks};
    if (led.leads()) {
        const auto ends = led.of_leaders(inner, Buffer::output, Buffer::output, Buffer::scratch)
                              .emit(schedule, gathered.dependency());
        after_all(results, ends,
                  [&] { return results.span(led.ranks - local).copy(remote).from(Buffer::output).to(Buffer::slot); });
    }
    results.post(done);
    StepBuilder waited = results.wait(done);
    if (led.leads())
        staged.after(waited, runs_ahead);
    else
        results.span(led.ranks - local).copy(remote).from(Buffer::slot).of({led.leader});
    return schedule.finish();
}

Schedule scatter_columns(const TwoLevel& levels, const Layout& layout) {
    const Grid grid(layout);
    const Schedule inner = levels.between_hosts(layout_of_hosts(layout), one_channel);
    Builder schedule = of_columns(levels, Collective::reduce_scatter, layout, inner);
    // Sums of the host, then of all hosts, lie in the own column of the own slot, which no other rank reads. The slot
    // is reused when all of the tile four before is done.
    const Embedding embedding = grid.of_column(inner, Buffer::slot, Buffer::slot);
    BlockBuilder block = schedule.block({});
    Gate gate(embedding.ends());
    gate.pass(block, [&] { return stage_others(grid, block); });
    block.post(entry);
    block.wait(entry);
    StepBuilder sum = block.loop(grid.rows).reduce(grid.down(grid.hosts.place)).to(Buffer::slot);
    gate.after(embedding.emit(schedule, sum.dependency()), slots_of_flag_block);
    return schedule.finish();
}

Schedule scatter_by_leaders(const TwoLevel& levels, const Layout& layout) {
    const Led led(layout);
    const Schedule inner = levels.between_hosts(layout_of_hosts(layout), one_channel);
    Builder schedule = led.builder(levels, Collective::reduce_scatter, layout, inner);
    if (led.own.size() == 1) {
        led.of_leaders(inner, Buffer::input, Buffer::output, Buffer::scratch).emit(schedule);
        return schedule.finish();
    }
    BlockBuilder entries = schedule.block({}), results = schedule.block({});
    if (!led.leads()) entries.span(led.ranks).copy({0}).to(Buffer::slot);
    entries.post(entry);
    entries.wait(entry);
    if (led.leads()) {
        StepBuilder sum = entries.span(led.ranks).reduce({0}).to(Buffer::slot);
        const auto ends =
            led.of_leaders(inner, Buffer::slot, Buffer::slot, Buffer::slot).emit(schedule, sum.dependency());
        after_all(results, ends, [&] { return results.copy({led.rank}).from(Buffer::slot).of({led.rank}); });
        results.post(done);
        sum.after(results.wait(done), runs_ahead);
    } else {
        results.post(done);
        results.wait(done);
        results.copy({led.rank}).from(Buffer::slot).of({led.leader});
    }
    return schedule.finish();
}

constexpr TwoLevel gather_by_ring = {"two_level_ring", ring_all_gather, ring_all_gather_us, INT_MAX};
constexpr TwoLevel scatter_by_ring = {"two_level_ring", ring_reduce_scatter, ring_reduce_scatter_us, INT_MAX};
constexpr TwoLevel leaders_gather = {"leader_halving_doubling", halving_doubling_all_gather,
                                     halving_doubling_all_gather_us, 1};
constexpr TwoLevel leaders_scatter = {"leader_halving_doubling", halving_doubling_reduce_scatter,
                                      halving_doubling_reduce_scatter_us, 1};
constexpr TwoLevel exchange_by_pairs = {"two_level_all_pairs", nullptr, all_pairs_gathered_us, INT_MAX};

}  // namespace

Schedule two_level_ring_all_gather(const Layout& layout, const Parameters&) {
    return gather_columns(gather_by_ring, layout);
}
Schedule two_level_ring_reduce_scatter(const Layout& layout, const Parameters&) {
    return scatter_columns(scatter_by_ring, layout);
}
Schedule leader_halving_doubling_all_gather(const Layout& layout, const Parameters&) {
    return gather_by_leaders(leaders_gather, layout);
}
Schedule leader_halving_doubling_reduce_scatter(const Layout& layout, const Parameters&) {
    return scatter_by_leaders(leaders_scatter, layout);
}

Schedule two_level_all_pairs_all_to_all(const Layout& layout, const Parameters&) {
    const Grid grid(layout);
    Builder schedule("two_level_all_pairs", Collective::all_to_all, layout,
                     {.chunks = grid.ranks,
                      .fifo_depth = two_level_parts_fifo_depth,
                      .span = grid.columns,
                      .shared_ranks = grid.hosts.local()});
    const int row = grid.hosts.host, column = grid.hosts.place;
    BlockBuilder local_phase = schedule.block({});
    stage_others(grid, local_phase);
    local_phase.post(entry);
    local_phase.copy({grid.rank});
    local_phase.wait(entry);
    // The parts of this host's ranks for our column, in the order of the receivers. The first one is written when all
    // of the previous tile's scratch has been sent.
    Gate gate(size_t(grid.rows - 1));
    std::vector<Dependency> sent;
    for (int distance = 1; distance < grid.rows; ++distance) {
        const int there = (row + distance) % grid.rows, peer = grid.rank_at(there, column);
        StepBuilder gathered = gate.pass(local_phase, [&] { return local_phase.copy({peer}).to(Buffer::scratch); });
        for (int next = 1; next < grid.columns; ++next) {
            const int place = (column + next) % grid.columns;
            gathered = local_phase.copy({peer})
                           .from(Buffer::slot)
                           .of({grid.rank_at(row, place)})
                           .to(Buffer::scratch)
                           .into({grid.rank_at(there, place)});
        }
        BlockBuilder block = schedule.block({.source = peer, .target = peer});
        sent.push_back(
            block.span(grid.columns).send({grid.rank_at(there, 0)}).from(Buffer::scratch).after(gathered).dependency());
        block.span(grid.columns).recv({grid.rank_at(there, 0)});
    }
    gate.after(sent, 1);
    for (int next = 1; next < grid.columns; ++next) {
        const int other = grid.rank_at(row, (column + next) % grid.columns);
        local_phase.copy({grid.rank}).from(Buffer::slot).of({other}).into({other});
    }
    return schedule.finish();
}

// By columns: all ranks alike stage and copy out, or stage and sum.
static double columns_us(const TwoLevel& levels, const Layout& layout, const LinkCosts& costs, size_t bytes,
                         double streams, double in_a_column) {
    const double local_phase_us =
        costs.meeting_us() * double(costs.tiles(bytes)) + costs.skew_us + streams * costs.stream_us(bytes, 2 * bytes);
    const double columns = Network(layout, costs, bytes).ranks_a_host();
    return overlapped_us(local_phase_us,
                         between_hosts_us(levels, layout, costs, size_t(double(bytes) * in_a_column), columns), costs,
                         bytes);
}
double two_level_ring_all_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return columns_us(gather_by_ring, layout, costs, bytes, 1, double(layout.host_count()) / layout.ranks);
}
double two_level_ring_reduce_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return columns_us(scatter_by_ring, layout, costs, bytes, 2, double(layout.host_count()) / layout.ranks);
}
double two_level_all_pairs_all_to_all_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return columns_us(exchange_by_pairs, layout, costs, bytes, 2, 1);
}

// By leaders: two waits; `streams` by all ranks, and `of_leader` by the leader while the others wait for it.
static double leaders_us(const TwoLevel& levels, const Layout& layout, const LinkCosts& costs, size_t bytes,
                         double streams, double of_leader) {
    LinkCosts alone = costs;
    alone.ranks_per_core = 1;
    const double local_phase_us = 2 * costs.meeting_us() * double(costs.tiles(bytes)) + 2 * costs.skew_us +
                                  streams * costs.stream_us(bytes, 2 * bytes) +
                                  of_leader * alone.stream_us(bytes, 2 * bytes);
    return overlapped_us(local_phase_us, between_hosts_us(levels, layout, costs, bytes, 1), costs, bytes);
}
double leader_halving_doubling_all_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return leaders_us(leaders_gather, layout, costs, bytes, 1, 1);
}
double leader_halving_doubling_reduce_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    const double ranks = Network(layout, costs, bytes).ranks_a_host();
    return leaders_us(leaders_scatter, layout, costs, bytes, 1, 1 + ranks);
}

static const char* not_host_by_host(const Layout& layout) {
    if (const char* refusal = not_two_levels(layout)) return refusal;
    return layout.in_blocks() ? nullptr : "needs ranks that are numbered host by host";
}
const char* no_grid(const Layout& layout) {
    if (const char* refusal = not_host_by_host(layout)) return refusal;
    const RanksByHost hosts = layout.ranks_by_host();
    for (const auto ranks : hosts)
        if (ranks.size() != hosts[0].size()) return "needs as many ranks on each host";
    return nullptr;
}
const char* no_leaders(const Layout& layout) {
    if (const char* refusal = not_host_by_host(layout)) return refusal;
    return too_many_parts(layout);
}
const char* no_grid_of_pairs(const Layout& layout) {
    if (const char* refusal = no_grid(layout)) return refusal;
    return too_many_pairs(layout_of_hosts(layout));
}

}  // namespace weft::internal
