// Double binary tree all-reduce, for small and medium messages on many hosts. Each half of the buffer is reduced up one
// tree and broadcast down the same tree. An inner rank of one tree is a leaf of the other, so the load is even. Tiles
// are pipelined through the trees: depth log2 N, and about twice the buffer through each link.
// Broadcast and reduce use one direction, with the root on top of both trees: once the buffer through each link.
// Source: Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009.
#include <cmath>
#include <cstdlib>

#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "algorithms/patterns.hpp"
#include "src/schedule/builder.hpp"

namespace weft::internal {

namespace {

// One slot is enough. With three, one tile travels up, one travels down, and one is reduced at the same time.
constexpr int double_binary_tree_fifo_depth = 3;
// In one direction, two slots let the next tile travel while this one is forwarded; other algorithms have as many.
constexpr int double_binary_tree_fifo_depth_one_way = 2;

// The in-order binary tree over 0..N-1: a node at distance `l` from its parent has `l` as its lowest bit. Node 0 is the
// top and has one child.
struct Tree {
    int ranks;

    static int lowest_bit(int node) { return node & -node; }
    int parent(int node) const {
        if (node == 0) return -1;
        const int bit = lowest_bit(node), above = (node ^ bit) | 2 * bit;
        return above < ranks ? above : node ^ bit;
    }
    // -1: none.
    int lower_child(int node) const { return lowest_bit(node) > 1 ? node - lowest_bit(node) / 2 : -1; }
    int upper_child(int node) const {
        int bit = lowest_bit(node);
        if (node == 0)
            for (bit = 1; bit < ranks;) bit *= 2;
        for (bit /= 2; bit > 0; bit /= 2)
            if (node + bit < ranks) return node + bit;
        return -1;
    }
    int depth() const {
        int edges = 0;
        while (1 << edges < ranks) ++edges;
        return edges;
    }
};

// The second tree is the first one mirrored, or shifted by one if N is odd.
int node_of(int place, int tree, int ranks) {
    if (tree == 0) return place;
    return ranks % 2 == 0 ? ranks - 1 - place : (place + 1) % ranks;
}
int position_of(int node, int tree, int ranks) {
    if (tree == 0) return node;
    return ranks % 2 == 0 ? ranks - 1 - node : (node + ranks - 1) % ranks;
}

// The work of one rank in one tree, with one chunk.
class TreeAllReduce {
  public:
    TreeAllReduce(Builder& schedule, const Layout& layout, int tree)
        : schedule_(schedule), order_(layout.host_major()), here_(layout.position()), tree_(tree) {}

    void emit() {
        const int ranks = int(order_.size());
        const Tree tree{ranks};
        const int node = node_of(here_, tree_, ranks);
        const auto place = [&](int of) { return of < 0 ? -1 : position_of(of, tree_, ranks); };
        const int up = place(tree.parent(node));
        int first = place(tree.lower_child(node)), second = place(tree.upper_child(node));
        if (first < 0) std::swap(first, second);
        if (up < 0) {
            ordered(block(first, first).recv_reduce_copy_send(chunk()), first).finish();
        } else if (first < 0) {
            StepBuilder given = block(-1, up).send(chunk());
            block(up, -1).recv(chunk()).after(given);
        } else if (second < 0) {
            StepBuilder given = ordered(block(first, up).recv_reduce_send(chunk()), first);
            block(up, first).recv_copy_send(chunk()).after(given);
        } else {
            StepBuilder sum = ordered(block(first, -1).recv_reduce_copy(chunk()), first);
            StepBuilder given = ordered(block(second, up).recv_reduce_send(chunk()).from(Buffer::output), second);
            given.after(sum);
            StepBuilder result = block(up, first).recv_copy_send(chunk()).after(given);
            block(-1, second).send(chunk()).from(Buffer::output).after(result);
        }
    }

  private:
    Chunk chunk() const { return {tree_}; }
    BlockBuilder block(int source, int target) {
        const auto rank = [&](int place) { return place < 0 ? -1 : order_[size_t(place)]; };
        return schedule_.block({.channel = tree_, .source = rank(source), .target = rank(target)});
    }
    // The lower ranks' part is the left operand.
    StepBuilder ordered(StepBuilder sum, int child) const { return child > here_ ? sum.left() : sum; }

    Builder& schedule_;
    RankOrder order_;
    int here_;
    int tree_;
};

// One direction, down or up. Positions count from the root, which is on top of both trees; an inner rank of one tree is
// a leaf of the other.
class OneWay {
  public:
    OneWay(Collective collective, const Layout& layout, int root)
        : order_(layout, root),
          here_(order_.here),
          schedule_("double_binary_tree", collective, layout,
                    {.channels = layout.ranks > 1 ? 2 : 1,
                     .chunks = layout.ranks > 1 ? 2 : 1,
                     .fifo_depth = layout.ranks > 1 ? double_binary_tree_fifo_depth_one_way : 0,
                     .root = root}) {}

    int rank(int place) const { return order_.rank(place); }
    int parent_of(int place, int tree) const {
        const int up = Tree{order_.ranks()}.parent(node_of(place, tree));
        return up < 0 ? -1 : position_of(up, tree);
    }
    bool top() const { return here_ == 0; }
    bool alone() const { return order_.ranks() == 1; }
    Schedule broadcast() {
        if (top()) schedule_.block({}).span(alone() ? 1 : 2).copy({0});
        for (int tree = 0; tree < 2 && !alone(); ++tree) {
            const auto [up, first, second] = neighbours(tree);
            if (top()) {
                block(tree, -1, first).send({tree});
            } else if (first < 0) {
                block(tree, up, -1).recv({tree});
            } else {
                StepBuilder have = block(tree, up, first).recv_copy_send({tree});
                if (second >= 0) block(tree, -1, second).send({tree}).from(Buffer::output).after(have);
            }
        }
        return schedule_.finish();
    }
    Schedule reduce() {
        if (alone()) schedule_.block({}).copy({0}).finish();
        for (int tree = 0, before = 0; tree < 2 && !alone(); ++tree, before = schedule_.blocks()) {
            const auto [up, first, second] = neighbours(tree);
            if (top()) {
                block(tree, first, -1).recv_reduce_copy({tree}).finish();
            } else if (first < 0) {
                block(tree, -1, up).send({tree});
            } else if (second < 0) {
                block(tree, first, up).recv_reduce_send({tree});
            } else {
                // The next tile's sum begins when this one's is sent.
                StepBuilder sum = block(tree, first, -1).recv_reduce_copy({tree}).to(Buffer::scratch);
                sum.after(Dependency{before + 1, 0, 1});
                block(tree, second, up).recv_reduce_send({tree}).from(Buffer::scratch).after(sum);
            }
        }
        return schedule_.finish();
    }

  private:
    struct TreeNeighbours {
        int up, first, second;  // positions; -1: none
    };
    // With an even number of ranks, the second tree shifts all ranks by one and moves the top to the end. With an odd
    // number it is mirrored.
    int node_of(int place, int tree) const {
        const int ranks = order_.ranks();
        if (tree == 0 || place == 0) return place;
        return ranks % 2 == 1 ? ranks - place : place == 1 ? ranks - 1 : place - 1;
    }
    int position_of(int node, int tree) const {
        const int ranks = order_.ranks();
        if (tree == 0 || node == 0) return node;
        return ranks % 2 == 1 ? ranks - node : node == ranks - 1 ? 1 : node + 1;
    }
    TreeNeighbours neighbours(int tree) const {
        const Tree nodes{order_.ranks()};
        const int node = node_of(here_, tree);
        const auto place = [&](int of) { return of < 0 ? -1 : position_of(of, tree); };
        TreeNeighbours found{place(nodes.parent(node)), place(nodes.lower_child(node)), place(nodes.upper_child(node))};
        if (found.first < 0) std::swap(found.first, found.second);
        return found;
    }
    BlockBuilder block(int tree, int source, int target) {
        const auto rank = [&](int place) { return place < 0 ? -1 : order_.rank(place); };
        return schedule_.block({.channel = tree, .source = rank(source), .target = rank(target)});
    }

    FromRoot order_;
    int here_;
    Builder schedule_;
};

}  // namespace

Schedule double_binary_tree_broadcast(const Layout& layout, const Parameters& parameters) {
    return OneWay(Collective::broadcast, layout, parameters.root).broadcast();
}
Schedule double_binary_tree_reduce(const Layout& layout, const Parameters& parameters) {
    return OneWay(Collective::reduce, layout, parameters.root).reduce();
}

Schedule double_binary_tree_all_reduce(const Layout& layout, const Parameters&) {
    const bool alone = layout.ranks == 1;
    Builder schedule(
        "double_binary_tree", Collective::all_reduce, layout,
        {.channels = alone ? 1 : 2, .chunks = alone ? 1 : 2, .fifo_depth = alone ? 0 : double_binary_tree_fifo_depth});
    if (alone)
        schedule.block({}).copy({0}).finish();
    else
        for (int tree = 0; tree < 2; ++tree) TreeAllReduce(schedule, layout, tree).emit();
    return schedule.finish();
}

// With B tiles the first one travels up and down, and the others follow. The sum is least where a tile's share of a
// link costs as much as B messages.
size_t double_binary_tree_tile_bytes(const Layout& layout, const LinkCosts& fitted, size_t bytes) {
    constexpr size_t least = 16 << 10;
    const LinkCosts& costs = fitted.cutting();
    const Network network(layout, costs, bytes);
    const double depth = 2 * std::max(1, Tree{layout.ranks}.depth());
    const double overhead_us = network.message_us(network.hosts() > 1);
    const double per_byte = network.hosts() > 1 ? costs.net_us_per_byte : costs.cached_us_per_byte;
    const double tile = std::sqrt(double(bytes) * overhead_us / (depth / 2 * per_byte));
    return std::clamp(size_t(tile) / 64 * 64, least, 2 * costs.net_slot_bytes);
}

// Time of the tree edges between hosts on the link with the most of them; each edge carries half of the buffer.
// `one_way`: downwards only, from position 0 of `rank_of`; otherwise both directions.
template <class Parent, class RankOf>
static double crossing_us(const Network& network, const Layout& layout, double bytes, bool one_way, Parent&& parent,
                          RankOf&& rank_of) {
    std::vector<double> in(size_t(network.all_links()), 0.0), out = in;
    for (int t = 0; t < 2; ++t)
        for (int place = 0; place < layout.ranks; ++place) {
            const int up = parent(place, t);
            if (up < 0) continue;
            const int lower = rank_of(place), upper = rank_of(up);
            const int distance = std::abs(layout.host_of(lower) - layout.host_of(upper));
            if (distance == 0) continue;
            const double edge_us = network.link_us(bytes / 2, distance > 1);
            for (const auto& [arrives, leaves] : {std::pair{lower, upper}, std::pair{upper, lower}}) {
                in[size_t(network.link_of(arrives))] += edge_us;
                out[size_t(network.link_of(leaves))] += edge_us;
                if (one_way) break;
            }
        }
    return std::max(*std::max_element(in.begin(), in.end()), *std::max_element(out.begin(), out.end()));
}

// Latency of the hops that a tile makes one after the other; the lowest are within hosts. A rank that is idle in one
// tree works in the other, so ranks that share a core wait for each other at every level.
static double way_us(const Network& network, const Layout& layout, double tile) {
    const int depth = Tree{layout.ranks}.depth();
    int far_hops = network.hosts() == 1 ? 0 : Tree{network.hosts()}.depth();
    // Half of the hops from below a host's highest rank bypass that rank, to the next host.
    if (far_hops > 0 && far_hops < depth && network.machines()) ++far_hops;
    double way = 0;
    for (int level = 1; level <= depth; ++level) {
        const bool crosses = level > depth - far_hops;
        way += network.message_us(crosses) + network.handling_us(tile / 2) + (crosses ? network.link_us(tile / 2) : 0);
    }
    return way;
}

double double_binary_tree_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    const Network network(layout, costs, bytes);
    const int ranks = layout.ranks, hosts = network.hosts();
    const Tree tree{ranks};
    const RankOrder order = layout.host_major();
    const double link = crossing_us(
        network, layout, double(bytes), false,
        [&](int place, int t) {
            const int up = tree.parent(node_of(place, t, ranks));
            return up < 0 ? -1 : position_of(up, t, ranks);
        },
        [&](int place) { return order[size_t(place)]; });
    const double tile = double(std::min(bytes, double_binary_tree_tile_bytes(layout, costs, bytes)));
    const double tiles = bytes == 0 ? 1 : std::ceil(double(bytes) / tile);
    const double messages = tiles * network.message_us(hosts > 1);
    const double handling = 4 * network.handling_us(double(bytes) / 2);
    return 2 * way_us(network, layout, tile) + std::max(messages, network.carried_us(link, handling));
}

// The root is assumed to be rank 0; the choice changes little. `halves`: halves of the buffer that a rank handles.
static double one_way_us(const Layout& layout, const LinkCosts& costs, size_t bytes, double halves) {
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    const Network network(layout, costs, bytes);
    const OneWay trees(Collective::broadcast, layout, 0);
    const double link = crossing_us(
        network, layout, double(bytes), true, [&](int place, int t) { return trees.parent_of(place, t); },
        [&](int place) { return trees.rank(place); });
    const double tile = double(std::min(bytes, double_binary_tree_tile_bytes(layout, costs, bytes)));
    const double tiles = bytes == 0 ? 1 : std::ceil(double(bytes) / tile);
    // Half as many messages as for both directions.
    const double messages = tiles * network.message_us(network.hosts() > 1) / 2;
    const double handling = halves * network.handling_us(double(bytes) / 2);
    double way = way_us(network, layout, tile);
    // The links of one machine are its processors, which work one after the other.
    if (costs.one_machine) return way + link + messages + handling;
    // The root is in neither tree: both tops are its children.
    if (network.hosts() > 1) way += network.message_us(true);
    return way + std::max({link, messages, handling});
}
double double_binary_tree_broadcast_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return one_way_us(layout, costs, bytes, 2);
}
double double_binary_tree_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return one_way_us(layout, costs, bytes, 3);
}

}  // namespace weft::internal
