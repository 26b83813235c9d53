// Two-level all-reduce: over the flag block inside a host, and by any algorithm over connections between hosts. The
// buffer is cut into as many shards as the smallest host has ranks.
// Each rank stages its input. The owner of a shard sums its host's contributions in rank order. It all-reduces the
// shard with its counterparts on other hosts, in place in its output, and puts the result on the flag block. The rest
// of the host copies it from there. Each byte leaves a host as often as in the algorithm between hosts, for any number
// of ranks per host.
// Source: Traeff and Rougier, "MPI collectives and datatypes for hierarchical all-to-all communication", 2014, for the
// decomposition.
// Jocksch et al., "An optimisation of allreduce communication in message-passing systems", 2021, for its use here.
#include "algorithms/two_level/two_level.hpp"

#include <climits>
#include <cmath>
#include <optional>

#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"

namespace weft::internal {

size_t owners_of(const TwoLevel& levels, const Layout& layout) {
    size_t owners = size_t(levels.owners_most);
    for (const auto ranks : layout.ranks_by_host()) owners = std::min(owners, ranks.size());
    return owners;
}

namespace {

class Composition {
  public:
    Composition(const TwoLevel& levels, const Layout& layout, const Parameters& parameters)
        : hosts_(Hosts::by_rails(layout)),
          owners_(int(owners_of(levels, layout))),
          inner_(levels.between_hosts(layout_of_hosts(layout), parameters)),
          schedule_(levels.name, Collective::all_reduce, layout,
                    {.channels = inner_.channels,
                     .chunks = inner_.chunks * owners_,
                     .fifo_depth = inner_.fifo_depth,
                     .span = inner_.span,
                     .shared_ranks = layout.local_ranks()}) {}

    Schedule make() {
        if (hosts_.local().size() == 1) {
            embedding(Buffer::input).emit(schedule_);
            return schedule_.finish();
        }
        // The first block fills the flag block while the second distributes the results of earlier tiles.
        BlockBuilder entries = schedule_.block({}), results = schedule_.block({});
        const std::optional<StepBuilder> staged = stage(entries);
        entries.post(entry);
        entries.wait(entry);
        if (owns()) {
            StepBuilder sum = entries.span(inner_.chunks).reduce(shard(hosts_.place));
            const std::vector<Dependency> ends = embedding(Buffer::output).emit(schedule_, sum.dependency());
            after_all(results, ends, [&] {
                return results.span(inner_.chunks).copy(shard(hosts_.place)).from(Buffer::output).to(Buffer::slot);
            });
        }
        results.post(done);
        StepBuilder waited = results.wait(done);
        for (int owner = 0; owner < owners_; ++owner)
            if (owner != hosts_.place)
                results.span(inner_.chunks).copy(shard(owner)).from(Buffer::slot).of({hosts_.local()[size_t(owner)]});
        // Staged inputs are read before the ranks synchronize again; the results that an owner adds are read later.
        if (staged && owns()) StepBuilder(*staged).after(waited, runs_ahead);
        return schedule_.finish();
    }

  private:
    bool owns() const { return hosts_.place < owners_; }
    Chunk shard(int owner) const { return {owner * inner_.chunks}; }
    // Among the ranks at our position on each host, for our shard.
    Embedding embedding(Buffer input) const {
        return {inner_,
                {.ranks = hosts_.column(hosts_.place),
                 .chunks = {{shard(hosts_.place).base, 1}},
                 .chunks_in_all = inner_.chunks * owners_,
                 .input = input}};
    }

    // Stages the shards that other ranks sum. Returns the first step; nothing if this rank sums all.
    std::optional<StepBuilder> stage(BlockBuilder& block) {
        const int own = owns() ? hosts_.place : owners_;
        std::optional<StepBuilder> first;
        for (const auto& [begin, end] : {std::pair{0, own}, std::pair{own + 1, owners_}}) {
            if (begin >= end) continue;
            StepBuilder step = block.span((end - begin) * inner_.chunks).copy(shard(begin)).to(Buffer::slot);
            if (!first) first = step;
        }
        return first;
    }

    Hosts hosts_;
    int owners_;  // the number of ranks of each host, from the first, that own a shard
    Schedule inner_;
    Builder schedule_;
};

Schedule two_level_all_reduce(const TwoLevel& levels, const Layout& layout, const Parameters& parameters) {
    return Composition(levels, layout, parameters).make();
}

}  // namespace

double between_hosts_us(const TwoLevel& levels, const Layout& layout, const LinkCosts& costs, size_t bytes,
                        double at_once) {
    const Network network(layout, costs, bytes);
    LinkCosts shared = costs;
    shared.net_us_per_byte *= at_once * (double(network.owners_on_a_link(int(at_once))) / int(at_once));
    shared.net_links = 1;
    shared.ranks_per_core = std::max(1, int(std::ceil(costs.ranks_per_core * at_once / network.ranks_a_host())));
    return levels.between_hosts_us(layout_of_hosts(layout), shared, bytes);
}

double overlapped_us(double flag_block_us, double between_us, const LinkCosts& costs, size_t bytes) {
    return std::max(flag_block_us, between_us) + std::min(flag_block_us, between_us) / double(costs.tiles(bytes));
}

static double two_level_all_reduce_us(const TwoLevel& levels, const Layout& layout, const LinkCosts& costs,
                                      size_t bytes) {
    const Network network(layout, costs, bytes);
    const double ranks = network.ranks_a_host(), owners = double(owners_of(levels, layout));
    // Staged and copied out; an owner sums its shard over all ranks and stores it twice.
    const double streams = 2 + (ranks + 2) / owners;
    const double tiles = double(costs.tiles(bytes));
    const double local_phase_us =
        2 * costs.meeting_us() * tiles + costs.skew_us + streams * costs.stream_us(bytes, 2 * bytes);
    // A short message fits in one shard.
    const double shards = std::clamp(double(bytes) / 64, 1.0, owners);
    return overlapped_us(local_phase_us,
                         between_hosts_us(levels, layout, costs, size_t(double(bytes) / shards), shards), costs, bytes);
}

static constexpr TwoLevel with_ring = {"two_level_ring", ring_all_reduce, ring_all_reduce_us, INT_MAX};
static constexpr TwoLevel with_tree = {"two_level_tree", double_binary_tree_all_reduce,
                                       double_binary_tree_all_reduce_us, INT_MAX};
static constexpr TwoLevel with_halving_doubling = {"two_level_halving_doubling", halving_doubling_all_reduce,
                                                   halving_doubling_all_reduce_us, INT_MAX};
static constexpr TwoLevel with_doubling = {"two_level_doubling", recursive_doubling_all_reduce,
                                           recursive_doubling_all_reduce_us, INT_MAX};
// Fewer messages, for hosts whose processors or links make each message expensive.
static constexpr TwoLevel leader_with_doubling = {"leader_doubling", recursive_doubling_all_reduce,
                                                  recursive_doubling_all_reduce_us, 1};

Schedule two_level_ring_all_reduce(const Layout& layout, const Parameters& parameters) {
    return two_level_all_reduce(with_ring, layout, parameters);
}
double two_level_ring_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return two_level_all_reduce_us(with_ring, layout, costs, bytes);
}
Schedule two_level_tree_all_reduce(const Layout& layout, const Parameters& parameters) {
    return two_level_all_reduce(with_tree, layout, parameters);
}
double two_level_tree_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return two_level_all_reduce_us(with_tree, layout, costs, bytes);
}
size_t two_level_tree_tile_bytes(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    const size_t owners = owners_of(with_tree, layout);
    return owners * double_binary_tree_tile_bytes(layout_of_hosts(layout), costs, bytes / owners);
}
Schedule two_level_halving_doubling_all_reduce(const Layout& layout, const Parameters& parameters) {
    return two_level_all_reduce(with_halving_doubling, layout, parameters);
}
double two_level_halving_doubling_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return two_level_all_reduce_us(with_halving_doubling, layout, costs, bytes);
}
Schedule two_level_doubling_all_reduce(const Layout& layout, const Parameters& parameters) {
    return two_level_all_reduce(with_doubling, layout, parameters);
}
double two_level_doubling_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return two_level_all_reduce_us(with_doubling, layout, costs, bytes);
}
Schedule leader_doubling_all_reduce(const Layout& layout, const Parameters& parameters) {
    return two_level_all_reduce(leader_with_doubling, layout, parameters);
}
double leader_doubling_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return two_level_all_reduce_us(leader_with_doubling, layout, costs, bytes);
}

}  // namespace weft::internal
