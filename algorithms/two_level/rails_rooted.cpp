// Two-level broadcast over connections only (rails.cpp has all-reduce and defines a rail). The root, the first of its
// host, sends each owner there its shard. Each shard travels along its rail to the other hosts, and its owner sends it
// to all other ranks of the host. Each byte reaches a host once, over all links at once. The root sends each other rank
// of its host two shards.
// Source: Barnett et al., "Interprocessor collective communication library (InterCom)", 1994, for scatter and gather
// inside.
// Cho et al., "BlueConnect: decomposing all-reduce for deep learning on heterogeneous network hierarchy", 2019, for
// rails.
#include <algorithm>

#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "algorithms/patterns.hpp"
#include "algorithms/two_level/two_level.hpp"

namespace weft::internal {

namespace {

// One slot is enough. With two, the next tile travels while the receiver distributes this one.
constexpr int rails_rooted_fifo_depth = 2;

class RailsFromRoot {
  public:
    RailsFromRoot(const TwoLevel& levels, const Layout& layout, int root)
        : hosts_(Hosts::by_rails(layout, root)),
          own_(hosts_.local()),
          owners_(int(owners_of(levels, layout))),
          at_root_(layout.host_of(layout.rank) == layout.host_of(root)),
          inner_(levels.between_hosts(layout_of_hosts(layout), {.root = layout.host_of(root)})),
          schedule_(levels.name, Collective::broadcast, layout,
                    {.channels = inner_.channels,
                     .chunks = inner_.chunks * owners_,
                     .fifo_depth = rails_rooted_fifo_depth,
                     .span = std::max(inner_.span, inner_.chunks),
                     .root = root}) {}

    Schedule make() {
        if (!at_root_) {
            hand_out(owns(place()) ? along_rail(Buffer::input) : std::vector<Dependency>());
        } else if (is_root()) {
            along_rail(Buffer::input);
            for (int other = 1; other < int(own_.size()); ++other) {
                BlockBuilder block = schedule_.block({.target = own_[size_t(other)]});
                if (owns(other)) send(block, other);
                send(block, 0);
            }
            if (owners_ > 1) schedule_.block({}).span(inner_.chunks * (owners_ - 1)).copy(shard(1));
        } else {
            // First its own shard, then the root's.
            BlockBuilder block = schedule_.block({.source = own_[0]});
            std::vector<Dependency> have;
            if (owns(place())) have = {recv(block, place()).dependency()};
            recv(block, 0);
            if (owns(place())) along_rail(Buffer::output, have[0]);
            hand_out(have);
        }
        return schedule_.finish();
    }

  private:
    int place() const { return hosts_.place; }
    bool is_root() const { return at_root_ && place() == 0; }
    bool owns(int place) const { return place < owners_; }
    Chunk shard(int owner) const { return {owner * inner_.chunks}; }
    StepBuilder send(BlockBuilder& block, int owner) { return block.span(inner_.chunks).send(shard(owner)); }
    StepBuilder recv(BlockBuilder& block, int owner) { return block.span(inner_.chunks).recv(shard(owner)); }

    std::vector<Dependency> along_rail(Buffer input, Dependency begin = {}) {
        return Embedding(inner_, {.ranks = hosts_.column(place()),
                                  .chunks = {{shard(place()).base, 1}},
                                  .chunks_in_all = inner_.chunks * owners_,
                                  .input = input})
            .emit(schedule_, begin);
    }
    // Sends its shards to each other rank of the host except the root, and receives that rank's shard.
    void hand_out(const std::vector<Dependency>& have) {
        JoinedSteps all(have);
        for (const int other : others_in_turns(place(), int(own_.size()))) {
            const int peer = own_[size_t(other)];
            const bool sends = owns(place()), receives = owns(other);
            if ((at_root_ && other == 0) || (!sends && !receives)) continue;
            BlockBuilder block = schedule_.block({.source = receives ? peer : -1, .target = sends ? peer : -1});
            if (sends) {
                const Dependency ready = all.in(block);
                send(block, place()).from(Buffer::output).after(ready);
            }
            if (receives) recv(block, other);
        }
    }

    Hosts hosts_;
    std::vector<int32_t> own_;  // this host's ranks; the root is the first on its host
    int owners_;                // the number of ranks of each host, from the first, that own a shard
    bool at_root_;              // on the root's host
    Schedule inner_;
    Builder schedule_;
};

// More owners only make each one's messages smaller.
constexpr int rails_enough = 8;

constexpr TwoLevel broadcast_along_trees = {"rail_tree", double_binary_tree_broadcast, double_binary_tree_broadcast_us,
                                            rails_enough};
constexpr TwoLevel broadcast_along_binomial = {"rail_binomial_tree", binomial_tree_broadcast,
                                               binomial_tree_broadcast_us, rails_enough};

// On the root's host a message precedes the transfer between hosts; on the others a message follows it.
double rails_broadcast_us(const TwoLevel& levels, const Layout& layout, const LinkCosts& costs, size_t bytes) {
    const Network network(layout, costs, bytes);
    const double owners = double(owners_of(levels, layout)), others = network.ranks_a_host() - 1;
    const double latency = 2 * network.message_us(false) + 2 * others * network.turns_us();
    // The root sends two shards to each other rank of its host.
    const double handling =
        2 * costs.side_by_side * costs.stream_us(size_t(double(bytes) * 2 * others / owners), 2 * bytes);
    return latency + overlapped_us(handling,
                                   between_hosts_us(levels, layout, costs, size_t(double(bytes) / owners), owners),
                                   costs, bytes);
}

}  // namespace

Schedule rail_tree_broadcast(const Layout& layout, const Parameters& parameters) {
    return RailsFromRoot(broadcast_along_trees, layout, parameters.root).make();
}
Schedule rail_binomial_tree_broadcast(const Layout& layout, const Parameters& parameters) {
    return RailsFromRoot(broadcast_along_binomial, layout, parameters.root).make();
}
double rail_tree_broadcast_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return rails_broadcast_us(broadcast_along_trees, layout, costs, bytes);
}
double rail_binomial_tree_broadcast_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return rails_broadcast_us(broadcast_along_binomial, layout, costs, bytes);
}

}  // namespace weft::internal
