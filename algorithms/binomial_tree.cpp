// Binomial trees for rooted collectives, for small messages and many ranks. Broadcast and reduce: log2 N rounds of the
// whole buffer. Scatter and gather: log2 N rounds for (N-1)/N of it; an inner rank forwards its subtree's parts with
// its own.
// Source: the textbook tree, as in Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations
// in MPICH", 2005.
#include <algorithm>
#include <optional>
#include <vector>

#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "algorithms/patterns.hpp"
#include "src/schedule/builder.hpp"

namespace weft::internal {

namespace {

// One slot is enough. With two, the next tile travels while the rank forwards this one.
constexpr int binomial_tree_fifo_depth = 2;

// Broadcast and reduce visit the ranks host by host.
struct ByHost : FromRoot {
    BinomialPosition place;

    ByHost(const Layout& layout, int root) : FromRoot(layout, root), place{layout.ranks, here} {}
};

Builder::Shape shape(const Layout& layout, const Parameters& parameters, int chunks, int span) {
    return {.chunks = chunks,
            .fifo_depth = layout.ranks > 1 ? binomial_tree_fifo_depth : 0,
            .span = span,
            .root = parameters.root};
}

// Scatter and gather: the parts lie in rank order, and the positions follow it.
struct ByRank {
    BinomialPosition place;
    int root;

    ByRank(const Layout& layout, int of)
        : place{layout.ranks, (layout.rank - of + layout.ranks) % layout.ranks}, root(of) {}
    int rank(int at) const { return (root + at) % place.ranks; }
    Chunk parts_from(int at) const { return {0, root + at, place.ranks}; }
    // The parts in the largest message of any rank: one of the root's two largest subtrees.
    int span() const {
        const int half = BinomialPosition{place.ranks, 0}.reach() / 2;
        return std::max({1, std::min(half, place.ranks - half), half / 2});
    }
};

}  // namespace

Schedule binomial_tree_broadcast(const Layout& layout, const Parameters& parameters) {
    Builder schedule("binomial_tree", Collective::broadcast, layout, shape(layout, parameters, 1, 1));
    const ByHost tree(layout, parameters.root);
    const std::vector<int> children = tree.place.children();
    if (tree.place.here == 0) {
        schedule.block({}).copy({0});
        for (const int child : children) schedule.block({.target = tree.rank(child)}).send({0});
        return schedule.finish();
    }
    const int parent = tree.rank(tree.place.parent());
    if (children.empty()) {
        schedule.block({.source = parent}).recv({0});
        return schedule.finish();
    }
    StepBuilder have = schedule.block({.source = parent, .target = tree.rank(children[0])}).recv_copy_send({0});
    for (size_t i = 1; i < children.size(); ++i)
        schedule.block({.target = tree.rank(children[i])}).send({0}).from(Buffer::output).after(have);
    return schedule.finish();
}

Schedule binomial_tree_reduce(const Layout& layout, const Parameters& parameters) {
    Builder schedule("binomial_tree", Collective::reduce, layout, shape(layout, parameters, 1, 1));
    const ByHost tree(layout, parameters.root);
    std::vector<int> children = tree.place.children();
    std::reverse(children.begin(), children.end());  // the smallest subtree is ready first
    const bool top = tree.place.here == 0;
    const int parent = top ? -1 : tree.rank(tree.place.parent());
    if (children.empty()) {
        if (top)
            schedule.block({}).copy({0}).finish();
        else
            schedule.block({.target = parent}).send({0});
        return schedule.finish();
    }
    // The root sums in its output. Other ranks sum in scratch, where the next tile waits until this one is sent.
    const Buffer sums = top ? Buffer::output : Buffer::scratch;
    const int last = int(children.size()) - 1;
    std::optional<StepBuilder> sum;
    for (int i = 0; i <= last; ++i) {
        const bool passes_on = i == last && !top;
        BlockBuilder block =
            schedule.block({.source = tree.rank(children[size_t(i)]), .target = passes_on ? parent : -1});
        StepBuilder next = passes_on ? block.recv_reduce_send({0}) : block.recv_reduce_copy({0}).to(sums);
        if (sum)
            next.from(sums).after(*sum);
        else if (!passes_on && !top)
            next.after(Dependency{last, 0, 1});
        sum = next;
    }
    if (top) sum->finish();
    return schedule.finish();
}

Schedule binomial_tree_gather(const Layout& layout, const Parameters& parameters) {
    const ByRank tree(layout, parameters.root);
    Builder schedule("binomial_tree", Collective::gather, layout, shape(layout, parameters, layout.ranks, tree.span()));
    const std::vector<int> children = tree.place.children();
    const int here = tree.place.here, blocks = int(children.size());
    const auto receive = [&](int child) {
        return schedule.block({.source = tree.rank(child)})
            .span(tree.place.size_of(child))
            .recv(tree.parts_from(child));
    };
    if (here == 0) {
        schedule.block({}).copy({layout.rank});
        for (const int child : children) receive(child);
        return schedule.finish();
    }
    const int parent = tree.rank(tree.place.parent());
    if (children.empty()) {
        schedule.block({.target = parent}).send({layout.rank});
        return schedule.finish();
    }
    // Received parts wait beside the own part. The next tile waits until this one is sent: a nop per child behind the
    // copy carries that dependency.
    std::vector<StepBuilder> come;
    for (const int child : children)
        come.push_back(receive(child).to(Buffer::scratch).after(Dependency{blocks, blocks + 1, 1}));
    BlockBuilder block = schedule.block({.target = parent});
    block.copy({layout.rank}).to(Buffer::scratch);
    for (const StepBuilder& step : come) block.nop().after(step);
    block.span(tree.place.size_of(here)).send(tree.parts_from(here)).from(Buffer::scratch);
    return schedule.finish();
}

Schedule binomial_tree_scatter(const Layout& layout, const Parameters& parameters) {
    const ByRank tree(layout, parameters.root);
    Builder schedule("binomial_tree", Collective::scatter, layout,
                     shape(layout, parameters, layout.ranks, tree.span()));
    const std::vector<int> children = tree.place.children();
    const int here = tree.place.here;
    if (here == 0) {
        schedule.block({}).copy({layout.rank});
        for (const int child : children)
            schedule.block({.target = tree.rank(child)}).span(tree.place.size_of(child)).send(tree.parts_from(child));
        return schedule.finish();
    }
    const int parent = tree.rank(tree.place.parent());
    if (children.empty()) {
        schedule.block({.source = parent}).recv({layout.rank});
        return schedule.finish();
    }
    BlockBuilder block = schedule.block({.source = parent});
    // The next tile may arrive when all parts of this one are sent: a nop per child waits for that.
    for (size_t i = 0; i < children.size(); ++i) block.nop().after(Dependency{int(i) + 1, 0, 1});
    StepBuilder have = block.span(tree.place.size_of(here)).recv(tree.parts_from(here)).to(Buffer::scratch);
    block.copy({layout.rank}).from(Buffer::scratch);
    for (const int child : children)
        schedule.block({.target = tree.rank(child)})
            .span(tree.place.size_of(child))
            .send(tree.parts_from(child))
            .from(Buffer::scratch)
            .after(have);
    return schedule.finish();
}

namespace {

struct RoundTraffic {
    bool parted, down;  // a child's part waits for the sends of its parent to other children
    Network::ReceivedData received_data;
};

// Between machines a host's link carries only the rounds that cross hosts, which are few.
double between_machines_us(const Network& network, const Layout& layout, const LinkCosts& costs, size_t bytes,
                           const RoundTraffic& traffic) {
    const RankOrder order = traffic.parted ? RankOrder(layout.ranks) : layout.host_major();
    const double tile = double(costs.net_slot_bytes) * (traffic.parted ? 2 : 1);
    const double alone = std::min(1.0, tile / std::max(1.0, double(bytes)));  // a tile's share of the buffer
    Network::Rounds rounds;
    int distance = 1, crossing = 0;
    while (2 * distance < layout.ranks) distance *= 2;
    for (; distance >= 1; distance /= 2) {
        std::vector<double> out(size_t(network.all_links()), 0.0);
        bool crosses = false;
        const double most = traffic.parted ? double(bytes) * distance / layout.ranks : double(bytes);
        for (int place = 0; place + distance < layout.ranks; place += 2 * distance) {
            const int from = order[size_t(place)], to = order[size_t(place + distance)];
            const double share = std::min(1.0, double(layout.ranks - place - distance) / distance);
            if (layout.host_of(from) == layout.host_of(to)) continue;
            crosses = true;
            out[size_t(network.link_of(from))] += traffic.parted ? most * share : most;
        }
        const double link = network.link_us(*std::max_element(out.begin(), out.end()));
        rounds.add(network.message_us(crosses), link * (traffic.down ? 1 + crossing * alone : 1),
                   network.handling_us(most, crosses, traffic.received_data));
        crossing += crosses;
    }
    return network.overlapped_us(rounds, double(bytes), tile);
}

}  // namespace

// The number of hops is the depth of the tree; the root sends to each of its children.
static double tree_us(const Layout& layout, const LinkCosts& costs, size_t bytes, const RoundTraffic& traffic) {
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    const Network network(layout, costs, bytes);
    if (network.machines()) return between_machines_us(network, layout, costs, bytes, traffic);
    Network::Rounds rounds;
    for (int distance = 1; distance < layout.ranks; distance *= 2)
        network.add_round(rounds, distance, traffic.parted ? double(bytes) * distance / layout.ranks : double(bytes),
                          traffic.received_data, std::max(1, layout.ranks / (2 * distance)));
    if (network.hosts() == 1) rounds.latency_us *= network.one_way_us(false) / network.message_us(false);
    return network.overlapped_us(rounds, double(bytes), double(costs.net_slot_bytes));
}
double binomial_tree_broadcast_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    // The two copies of the two ranks overlap, or one rank makes both.
    if (layout.ranks == 2 && layout.host_count() == 1) {
        const Network network(layout, costs, bytes);
        return network.slot_back_us() + network.one_way_us(false) + 1.5 * costs.stream_us(bytes, 2 * bytes);
    }
    return tree_us(layout, costs, bytes, {false, true, Network::ReceivedData::finished});
}
double binomial_tree_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    // One rank copies while the other reduces the previous tile. Beyond the caches a chain of small tiles is faster.
    if (layout.ranks == 2 && layout.host_count() == 1 && 2 * bytes <= costs.cache_bytes)
        return Network(layout, costs, bytes).one_way_us(false) + costs.stream_us(bytes, 2 * bytes);
    return tree_us(layout, costs, bytes, {false, false, Network::ReceivedData::parts});
}
double binomial_tree_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return tree_us(layout, costs, bytes, {true, false, Network::ReceivedData::finished});
}
double binomial_tree_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return tree_us(layout, costs, bytes, {true, true, Network::ReceivedData::finished});
}

}  // namespace weft::internal
