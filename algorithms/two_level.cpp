// Two-level all-reduce: inside a host over the board, between hosts by any algorithm of connections. The buffer is cut
// into as many shards as the smallest host has ranks. Everybody stages; the owner of a shard sums its host's
// contributions in rank order, then all-reduces the shard with its like on the other hosts, in place in its output, and
// puts the result on the board, from where the rest of the host copies it. Each byte leaves a host as often as the
// algorithm between hosts has it, whatever the number of ranks there.
// Source: Traeff and Rougier, "MPI collectives and datatypes for hierarchical all-to-all communication", 2014, for the
// decomposition; Jocksch et al., "An optimisation of allreduce communication in message-passing systems", 2021, for its
// use here.
#include "algorithms/two_level.hpp"

#include <cassert>
#include <climits>
#include <cmath>
#include <optional>

#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "src/schedule/builder.hpp"

namespace weft {

namespace {

constexpr int entry = 0, done = 1;

// A slot is written again four tiles later. Who has waited for the dones of three tiles ago knows that everybody has
// read all of the tile before that, which lay in the same slot (src/README.md, "The board", rule 10).
constexpr int runs_ahead = 3;

size_t owners_of(const TwoLevel& levels, const Layout& layout) {
    size_t owners = size_t(levels.owners_most);
    for (const auto& ranks : layout.ranks_by_host()) owners = std::min(owners, ranks.size());
    return owners;
}

class Composition {
  public:
    Composition(const TwoLevel& levels, const Layout& layout, const Parameters& parameters)
        : hosts_(layout.ranks_by_host()),
          local_(hosts_[size_t(layout.host_of(layout.rank))]),
          place_(int(std::find(local_.begin(), local_.end(), layout.rank) - local_.begin())),
          owners_(int(owners_of(levels, layout))),
          inner_(levels.between_hosts(layout_of_hosts(layout), parameters)),
          schedule_(levels.name, Collective::all_reduce, layout,
                    {.channels = inner_.channels,
                     .chunks = inner_.chunks * owners_,
                     .fifo_depth = inner_.fifo_depth,
                     .span = inner_.span,
                     .board = local_}) {
        assert(inner_.board.empty() && inner_.tiles == 1);
    }

    Schedule make() {
        if (local_.size() == 1) {
            embed(Buffer::input, {});
            return schedule_.finish();
        }
        // The first block fills the board while the second hands out what earlier tiles became.
        BlockBuilder entries = schedule_.block({}), results = schedule_.block({});
        const std::optional<Step> staged = stage(entries);
        entries.post(entry);
        entries.wait(entry);
        if (owns()) {
            Step sum = entries.span(inner_.chunks).reduce(shard(place_));
            const std::vector<Dependency> ends = embed(Buffer::output, sum.dependency());
            for (size_t i = 0; i + 1 < ends.size(); ++i) results.nop().after(ends[i]);
            results.span(inner_.chunks).copy(shard(place_)).from(Buffer::output).to(Buffer::slot).after(ends.back());
        }
        results.post(done);
        Step waited = results.wait(done);
        for (int owner = 0; owner < owners_; ++owner)
            if (owner != place_)
                results.span(inner_.chunks).copy(shard(owner)).from(Buffer::slot).of({local_[size_t(owner)]});
        // What others stage is read before they meet again; what an owner puts there besides, is read later.
        if (staged && owns()) Step(*staged).after(waited, runs_ahead);
        return schedule_.finish();
    }

  private:
    bool owns() const { return place_ < owners_; }
    Chunk shard(int owner) const { return {owner * inner_.chunks}; }

    // All that others sum. The first step of it; nothing, if this rank sums all.
    std::optional<Step> stage(BlockBuilder& block) {
        const int own = owns() ? place_ : owners_;
        std::optional<Step> first;
        for (const auto& [begin, end] : {std::pair{0, own}, std::pair{own + 1, owners_}}) {
            if (begin >= end) continue;
            Step step = block.span((end - begin) * inner_.chunks).copy(shard(begin)).to(Buffer::slot);
            if (!first) first = step;
        }
        return first;
    }

    // The inner schedule's blocks among the ranks of our place on each host, on our shard. They read `source` where the
    // algorithm reads its input, and begin after `begin`. The steps that nothing of it comes after.
    std::vector<Dependency> embed(Buffer source, Dependency begin) {
        const int blocks_before = local_.size() > 1 ? 2 : 0;
        const auto rank_on = [&](int host) { return host < 0 ? -1 : hosts_[size_t(host)][size_t(place_)]; };
        std::vector<Dependency> ends;
        for (int b = 0; b < int(inner_.blocks.size()); ++b) {
            const Block& from = inner_.blocks[size_t(b)];
            BlockBuilder block = schedule_.block({from.channel, rank_on(from.source), rank_on(from.target)});
            for (int s = 0; s < int(from.instructions.size()); ++s) {
                Instruction it = from.instructions[size_t(s)];
                // What would be copied into the output is there. Nothing comes after such a copy but its block's steps.
                if (it.opcode == Opcode::copy && source == Buffer::output) continue;
                it.chunk.base += shard(place_).base;
                if (it.source == Buffer::input) it.source = source;
                if (it.after != Dependency())
                    it.after = {it.after.block + blocks_before, step_of(it.after), it.after.ago};
                else if (block.size() == 0)
                    it.after = begin;
                block.append(it);
            }
            if (!awaited(b)) ends.push_back({b + blocks_before, block.size() - 1});
        }
        return ends;
    }
    // Where a step of the inner schedule stands without the copies before it.
    int step_of(const Dependency& of) const {
        const auto& steps = inner_.blocks[size_t(of.block)].instructions;
        if (local_.size() == 1) return of.step;
        return of.step - int(std::count_if(steps.begin(), steps.begin() + of.step,
                                           [](const Instruction& it) { return it.opcode == Opcode::copy; }));
    }
    // Whether something of the inner schedule runs after the last step of its block b.
    bool awaited(int b) const {
        for (const Block& block : inner_.blocks)
            for (const Instruction& it : block.instructions)
                if (it.after == Dependency{b, int(inner_.blocks[size_t(b)].instructions.size()) - 1}) return true;
        return false;
    }

    std::vector<std::vector<int32_t>> hosts_;
    std::vector<int32_t> local_;
    int place_;   // of this rank among its host's
    int owners_;  // the first so many of each host own a shard
    Schedule inner_;
    Builder schedule_;
};

}  // namespace

Layout layout_of_hosts(const Layout& layout) {
    Layout hosts{layout.host_count(), layout.host_of(layout.rank), {}};
    for (int host = 0; host < hosts.ranks; ++host) hosts.hosts.push_back(host);
    return hosts;
}

Schedule two_level_all_reduce(const TwoLevel& levels, const Layout& layout, const Parameters& parameters) {
    return Composition(levels, layout, parameters).make();
}

double two_level_all_reduce_us(const TwoLevel& levels, const Layout& layout, const LinkCosts& costs, size_t bytes) {
    const Network network(layout, costs, bytes);
    const double ranks = network.ranks_a_host(), owners = double(owners_of(levels, layout));
    // Staged and copied out; an owner sums its shard of every rank and stores it twice.
    const double streams = 2 + (ranks + 2) / owners;
    const double tiles = double(costs.tiles(bytes));
    const double board = 2 * costs.meeting_us() * tiles + costs.skew_us + streams * costs.stream_us(bytes, 2 * bytes);
    // A short message is one shard's. The owners share their host's link.
    const double shards = std::clamp(double(bytes) / 64, 1.0, owners);
    LinkCosts shared = costs;
    shared.net_us_per_byte *= shards;
    shared.ranks_per_core = std::max(1, int(std::ceil(costs.ranks_per_core * shards / ranks)));
    const double between = levels.between_hosts_us(layout_of_hosts(layout), shared, size_t(double(bytes) / shards));
    // Tiles overlap: the board works on one while another travels.
    return std::max(board, between) + std::min(board, between) / tiles;
}

static constexpr TwoLevel with_ring = {"two_level_ring", ring_all_reduce, ring_all_reduce_us, INT_MAX};
static constexpr TwoLevel with_tree = {"two_level_tree", double_binary_tree_all_reduce,
                                       double_binary_tree_all_reduce_us, INT_MAX};
static constexpr TwoLevel with_halving_doubling = {"two_level_halving_doubling", halving_doubling_all_reduce,
                                                   halving_doubling_all_reduce_us, INT_MAX};
static constexpr TwoLevel with_doubling = {"two_level_doubling", recursive_doubling_all_reduce,
                                           recursive_doubling_all_reduce_us, INT_MAX};
// Fewer messages where a host's processors or its link make each one dear.
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

}  // namespace weft
