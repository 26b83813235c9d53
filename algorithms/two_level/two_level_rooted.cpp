// Two-level broadcast and reduce: over the flag block inside a host, and by any algorithm over connections between
// hosts. The buffer is cut into shards, and one rank of each host carries each; the root is the first of them on its
// host.
// In a broadcast the owners put arrivals on the flag block, and the rest of the host copies them. In a reduce the
// owners sum what their host has staged, in rank order, before they reduce it among hosts. One owner per host needs the
// fewest messages.
// Source: Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize collective operation
// performance", 2000.
#include <cmath>

#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "algorithms/two_level/two_level.hpp"

namespace weft::internal {

namespace {

class Rooted {
  public:
    Rooted(const TwoLevel& levels, Collective collective, const Layout& layout, const Parameters& parameters)
        : hosts_(Hosts::by_rails(layout, parameters.root)),
          owners_(int(owners_of(levels, layout))),
          at_root_(layout.host_of(layout.rank) == layout.host_of(parameters.root)),
          inner_(levels.between_hosts(layout_of_hosts(layout), {.root = layout.host_of(parameters.root)})),
          schedule_(levels.name, collective, layout,
                    {.channels = inner_.channels,
                     .chunks = inner_.chunks * owners_,
                     .fifo_depth = inner_.fifo_depth,
                     .span = inner_.span,
                     .shared_ranks = layout.local_ranks(),
                     .root = parameters.root}) {}

    Schedule broadcast() {
        if (alone()) return embed(Buffer::input, Buffer::output, Buffer::scratch), schedule_.finish();
        if (at_root_) {
            BlockBuilder local_phase = schedule_.block({});
            if (is_root()) local_phase.span(chunks()).copy({0}).to(Buffer::slot);
            local_phase.post(entry);
            // The transfer of its own shard begins with that copy.
            if (is_root()) local_phase.span(chunks() - inner_.chunks).copy(shard(1));
            local_phase.wait(entry);
            if (is_root()) {
                embed(Buffer::input, Buffer::output, Buffer::scratch);
            } else {
                StepBuilder have = local_phase.span(chunks()).copy({0}).from(Buffer::slot).of({root()});
                if (owns()) embed(Buffer::output, Buffer::output, Buffer::scratch, have.dependency());
            }
            return schedule_.finish();
        }
        const auto ends = owns() ? embed(Buffer::input, Buffer::output, Buffer::scratch) : std::vector<Dependency>();
        BlockBuilder local_phase = schedule_.block({});
        if (owns())
            after_all(local_phase, ends, [&] {
                return local_phase.span(inner_.chunks).copy(shard(hosts_.place)).from(Buffer::output).to(Buffer::slot);
            });
        local_phase.post(entry);
        local_phase.wait(entry);
        copy_shards(local_phase, 0);
        return schedule_.finish();
    }

    Schedule reduce() {
        if (alone()) return embed(Buffer::input, Buffer::output, Buffer::scratch), schedule_.finish();
        const bool hands_over = at_root_ && owners_ > 1;
        BlockBuilder entries = schedule_.block({}), results = entries;
        if (hands_over) results = schedule_.block({});
        // Sums lie in the own slot, which no other rank reads before they are complete.
        const Embedding embedding = among_owners(Buffer::slot, is_root() ? Buffer::output : Buffer::slot, Buffer::slot);
        if (!owns()) {
            entries.span(chunks()).copy({0}).to(Buffer::slot);
            entries.post(entry);
            entries.wait(entry);
            if (hands_over) results.post(done), results.wait(done);
            return schedule_.finish();
        }
        // The own slot's contents of four tiles ago are no longer needed: that tile is done, or has been read by the
        // rank that reads the slot.
        const bool read_by_root = hands_over && !is_root();
        Gate gate(read_by_root ? 1 : embedding.ends());
        const int before = hosts_.place, behind = owners_ - before - 1;
        if (before > 0) gate.pass(entries, [&] { return stage(entries, 0, before); });
        if (behind > 0) gate.pass(entries, [&] { return stage(entries, before + 1, behind); });
        entries.post(entry);
        entries.wait(entry);
        StepBuilder sum = gate.pass(
            entries, [&] { return entries.span(inner_.chunks).reduce(shard(hosts_.place)).to(Buffer::slot); });
        const std::vector<Dependency> ends = embedding.emit(schedule_, sum.dependency());
        if (!read_by_root) gate.after(ends, slots_of_flag_block);
        if (!hands_over) return schedule_.finish();
        if (is_root())
            results.post(done);
        else
            after_all(results, ends, [&] { return results.post(done); });
        StepBuilder waited = results.wait(done);
        if (is_root())
            copy_shards(results, 1);
        else
            gate.after({waited.dependency()}, runs_ahead);
        return schedule_.finish();
    }

  private:
    int root() const { return hosts_.local()[0]; }  // on its host
    bool is_root() const { return at_root_ && hosts_.place == 0; }
    bool owns() const { return hosts_.place < owners_; }
    bool alone() const { return hosts_.local().size() == 1; }
    int chunks() const { return inner_.chunks * owners_; }
    Chunk shard(int owner) const { return {owner * inner_.chunks}; }

    Embedding among_owners(Buffer input, Buffer output, Buffer scratch) const {
        return {inner_,
                {hosts_.column(owns() ? hosts_.place : 0),
                 {{shard(owns() ? hosts_.place : 0).base, 1}},
                 chunks(),
                 input,
                 output,
                 scratch}};
    }
    std::vector<Dependency> embed(Buffer input, Buffer output, Buffer scratch, Dependency begin = {}) {
        return among_owners(input, output, scratch).emit(schedule_, begin);
    }
    // Stages the shards that other ranks sum.
    StepBuilder stage(BlockBuilder& block, int owner, int owners) const {
        return block.span(owners * inner_.chunks).copy(shard(owner)).to(Buffer::slot);
    }
    // The shards of other owners, from that owner on.
    void copy_shards(BlockBuilder& block, int first) const {
        for (int owner = first; owner < owners_; ++owner)
            if (owner != hosts_.place)
                block.span(inner_.chunks).copy(shard(owner)).from(Buffer::slot).of({hosts_.local()[size_t(owner)]});
    }

    Hosts hosts_;
    int owners_;
    bool at_root_;  // on the root's host
    Schedule inner_;
    Builder schedule_;
};

// This many processors saturate any host's network; more only make each one's messages smaller.
constexpr int owners_enough = 8;

constexpr TwoLevel broadcast_by_leaders = {"leader_binomial_tree", binomial_tree_broadcast, binomial_tree_broadcast_us,
                                           1};
constexpr TwoLevel broadcast_by_tree = {"two_level_tree", double_binary_tree_broadcast, double_binary_tree_broadcast_us,
                                        owners_enough};
constexpr TwoLevel reduce_by_leaders = {"leader_binomial_tree", binomial_tree_reduce, binomial_tree_reduce_us, 1};
constexpr TwoLevel reduce_by_tree = {"two_level_tree", double_binary_tree_reduce, double_binary_tree_reduce_us,
                                     owners_enough};

// Two synchronizations one after the other, on the root's host and on the others, and a rank's other work in streams.
double rooted_us(const TwoLevel& levels, const Layout& layout, const LinkCosts& costs, size_t bytes, double streams,
                 double of_owner) {
    LinkCosts alone = costs;
    const double owners = double(owners_of(levels, layout)), ranks = Network(layout, costs, bytes).ranks_a_host();
    alone.ranks_per_core = std::max(1, int(std::ceil(costs.ranks_per_core * owners / ranks)));
    const double local_phase_us = 2 * costs.meeting_us() * double(costs.tiles(bytes)) + costs.skew_us +
                                  streams * costs.stream_us(bytes, 2 * bytes) +
                                  of_owner / owners * alone.stream_us(bytes, 2 * bytes);
    return overlapped_us(local_phase_us,
                         between_hosts_us(levels, layout, costs, size_t(double(bytes) / owners), owners), costs, bytes);
}
double broadcast_us(const TwoLevel& levels, const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return rooted_us(levels, layout, costs, bytes, 1, 1);
}
double reduce_us(const TwoLevel& levels, const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return rooted_us(levels, layout, costs, bytes, 1, 1 + Network(layout, costs, bytes).ranks_a_host());
}

}  // namespace

Schedule leader_binomial_tree_broadcast(const Layout& layout, const Parameters& parameters) {
    return Rooted(broadcast_by_leaders, Collective::broadcast, layout, parameters).broadcast();
}
Schedule two_level_tree_broadcast(const Layout& layout, const Parameters& parameters) {
    return Rooted(broadcast_by_tree, Collective::broadcast, layout, parameters).broadcast();
}
Schedule leader_binomial_tree_reduce(const Layout& layout, const Parameters& parameters) {
    return Rooted(reduce_by_leaders, Collective::reduce, layout, parameters).reduce();
}
Schedule two_level_tree_reduce(const Layout& layout, const Parameters& parameters) {
    return Rooted(reduce_by_tree, Collective::reduce, layout, parameters).reduce();
}
size_t two_level_tree_rooted_tile_bytes(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    const size_t owners = owners_of(broadcast_by_tree, layout);
    return owners * double_binary_tree_tile_bytes(layout_of_hosts(layout), costs, bytes / owners);
}
double leader_binomial_tree_broadcast_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return broadcast_us(broadcast_by_leaders, layout, costs, bytes);
}
double two_level_tree_broadcast_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return broadcast_us(broadcast_by_tree, layout, costs, bytes);
}
double leader_binomial_tree_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return reduce_us(reduce_by_leaders, layout, costs, bytes);
}
double two_level_tree_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return reduce_us(reduce_by_tree, layout, costs, bytes);
}
}  // namespace weft::internal
