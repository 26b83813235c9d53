// Double binary tree all-reduce: each half of the buffer is summed up one tree and handed down the same way. Who is an
// inner rank of one tree is a leaf of the other, so all carry alike. Tiles follow each other through the trees without
// waiting: depth log2 N, and about twice the buffer through each link: for small to middle messages on many hosts.
// Source: Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009.
#include <cmath>
#include <cstdlib>

#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "src/schedule/builder.hpp"

namespace weft {

namespace {

// One would do; with three a tile can be on its way up, one down and one being summed.
constexpr int fifo_depth = 3;

// The in-order binary tree over 0..N-1: who is `l` from its parent has `l` as its lowest bit; 0 is on top and has one
// child.
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

// The second tree is the first mirrored, or, if N is odd, shifted by one.
int node_of(int place, int tree, int ranks) {
    if (tree == 0) return place;
    return ranks % 2 == 0 ? ranks - 1 - place : (place + 1) % ranks;
}
int place_of(int node, int tree, int ranks) {
    if (tree == 0) return node;
    return ranks % 2 == 0 ? ranks - 1 - node : (node + ranks - 1) % ranks;
}

// What one rank does in one tree, with one chunk.
class Climb {
  public:
    Climb(Builder& schedule, const Layout& layout, int tree)
        : schedule_(schedule), order_(layout.host_major()), here_(layout.position()), tree_(tree) {}

    void emit() {
        const int ranks = int(order_.size());
        const Tree tree{ranks};
        const int node = node_of(here_, tree_, ranks);
        const auto place = [&](int of) { return of < 0 ? -1 : place_of(of, tree_, ranks); };
        const int up = place(tree.parent(node));
        int first = place(tree.lower_child(node)), second = place(tree.upper_child(node));
        if (first < 0) std::swap(first, second);
        if (up < 0) {
            ordered(block(first, first).recv_reduce_copy_send(chunk()), first).finish();
        } else if (first < 0) {
            Step given = block(-1, up).send(chunk());
            block(up, -1).recv(chunk()).after(given);
        } else if (second < 0) {
            Step given = ordered(block(first, up).recv_reduce_send(chunk()), first);
            block(up, first).recv_copy_send(chunk()).after(given);
        } else {
            Step sum = ordered(block(first, -1).recv_reduce_copy(chunk()), first);
            Step given = ordered(block(second, up).recv_reduce_send(chunk()).from(Buffer::output), second);
            given.after(sum);
            Step result = block(up, first).recv_copy_send(chunk()).after(given);
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
    Step ordered(Step sum, int child) const { return child > here_ ? sum.left() : sum; }

    Builder& schedule_;
    std::vector<int32_t> order_;
    int here_;
    int tree_;
};

}  // namespace

Schedule double_binary_tree_all_reduce(const Layout& layout, const Parameters&) {
    const bool alone = layout.ranks == 1;
    Builder schedule("double_binary_tree", Collective::all_reduce, layout,
                     {.channels = alone ? 1 : 2, .chunks = alone ? 1 : 2, .fifo_depth = alone ? 0 : fifo_depth});
    if (alone)
        schedule.block({}).copy({0}).finish();
    else
        for (int tree = 0; tree < 2; ++tree) Climb(schedule, layout, tree).emit();
    return schedule.finish();
}

// With B tiles the first takes the way up and down, the others follow: the sum of both is least where each tile's share
// of a link costs as much as what B messages cost.
size_t double_binary_tree_tile_bytes(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    constexpr size_t least = 16 << 10;
    const Network network(layout, costs, bytes);
    const double depth = 2 * std::max(1, Tree{layout.ranks}.depth());
    const double overhead_us = network.message_us(network.hosts() > 1);
    const double per_byte = network.hosts() > 1 ? costs.net_us_per_byte : costs.cached_us_per_byte;
    const double tile = std::sqrt(double(bytes) * overhead_us / (depth / 2 * per_byte));
    return std::clamp(size_t(tile) / 64 * 64, least, 2 * costs.net_slot_bytes);
}

double double_binary_tree_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    const Network network(layout, costs, bytes);
    const int ranks = layout.ranks, hosts = network.hosts();
    const Tree tree{ranks};
    // What the edges that cross each host's border take, in both trees; each carries half of the buffer either way.
    std::vector<double> links_us(size_t(hosts), 0.0);
    const std::vector<int32_t> order = layout.host_major();
    for (int t = 0; t < 2; ++t)
        for (int node = 1; node < ranks; ++node) {
            const int host = layout.host_of(order[size_t(place_of(node, t, ranks))]);
            const int above = layout.host_of(order[size_t(place_of(tree.parent(node), t, ranks))]);
            if (host == above) continue;
            const bool far = std::abs(host - above) > 1;
            for (const int end : {host, above}) links_us[size_t(end)] += network.link_us(double(bytes) / 2, far);
        }
    const double link = *std::max_element(links_us.begin(), links_us.end());
    const double tile = double(std::min(bytes, double_binary_tree_tile_bytes(layout, costs, bytes)));
    const double tiles = bytes == 0 ? 1 : std::ceil(double(bytes) / tile);
    // Up and down once, the lowest hops within hosts. The fewer work at a level the fewer share its processors.
    const int far_hops = hosts == 1 ? 0 : Tree{hosts}.depth();
    double way = 0;
    for (int level = 1; level <= tree.depth(); ++level) {
        const bool crosses = level > tree.depth() - far_hops;
        LinkCosts at_work = costs;
        at_work.ranks_per_core = std::max(1, 2 * costs.ranks_per_core >> level);
        way += 2 * (Network(layout, at_work, bytes).message_us(crosses) + network.handling_us(tile / 2) +
                    (crosses ? network.link_us(tile / 2) : 0));
    }
    const double messages = tiles * network.message_us(hosts > 1);
    return way + std::max({link, messages, 4 * network.handling_us(double(bytes) / 2)});
}

}  // namespace weft
