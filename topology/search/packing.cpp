#include "topology/search/packing.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "topology/model/speeds.hpp"
#include "topology/search/cycle.hpp"

namespace weft::internal::topology {

namespace {

constexpr int rounds_most = 60;
constexpr int patience = 16;      // rounds without improvement
constexpr size_t ports_most = 2;  // ports for which the order of a ring is searched
constexpr double contention_growth = 1.3;
constexpr double contention_most = 1e4;

class Packer {
  public:
    Packer(const RoutingGraph& fabric, const PackingRequest& request, int64_t& steps)
        : fabric_(fabric), request_(request), steps_(steps), outside_(!fabric.ports().empty()) {
        const size_t arcs = fabric.arcs().size();
        uses_.assign(arcs, 0);
        history_.assign(arcs, 0);
        for (const Arc& arc : fabric.arcs()) room_.push_back(int(std::min(1e6, arc.gbs / request.unit_gbs + 1e-6)));
        rings_.resize(size_t(request.pairs ? (request.rings + 1) / 2 : request.rings));
    }

    Packing run() {
        for (int round = 0, improved = 0; round < rounds_most && round - improved < patience; ++round) {
            for (size_t i = 0; i < rings_.size(); ++i) {
                // Sometimes also rings without contention: they may use the only path of others.
                if (round > 0 && round % 4 != 0 && !contends(rings_[i])) continue;
                use(rings_[i], -1);
                // Out of steps: uses an existing ring again, so that every ring is complete.
                const bool again = i > 0 && steps_ > request_.steps_most && request_.given.empty();
                PackedRing ring = again ? rings_[i - 1] : cheapest(i);
                if (ring.order.empty()) return {};
                rings_[i] = std::move(ring);
                use(rings_[i], 1);
                if (round > 0 && steps_ > request_.steps_most) break;
            }
            if (keep_best()) improved = round;
            bool fits = true;
            for (size_t i = 0; i < uses_.size(); ++i) {
                const int over = uses_[i] - room_[i];
                if (over <= 0) continue;
                fits = false;
                history_[i] += over / double(std::max(1, room_[i]));
            }
            if (fits || steps_ > request_.steps_most) break;
            contention_ = std::min(contention_most, contention_ * contention_growth);
        }
        return std::move(best_);
    }

  private:
    template <class Visit>
    static void each_arc(const PackedRing& ring, Visit&& visit) {
        for (const auto& route : ring.routes)
            for (const int arc : route) visit(arc);
    }
    void use(const PackedRing& ring, int times) {
        each_arc(ring, [&](int arc) {
            uses_[size_t(arc)] += times;
            if (request_.pairs) uses_[size_t(arc) ^ 1] += times;
        });
    }
    bool contends(const PackedRing& ring) const {
        bool found = false;
        each_arc(ring, [&](int arc) {
            found |= uses_[size_t(arc)] > room_[size_t(arc)];
            if (request_.pairs) found |= uses_[size_t(arc) ^ 1] > room_[size_t(arc) ^ 1];
        });
        return found;
    }
    double price(size_t arc) const {
        // A link that is narrower than a ring is the last resort.
        if (fabric_.arcs()[arc].gbs <= 0) return infinite;
        const double base = fabric_.price_of(int(arc)) + history_[arc];
        if (room_[arc] == 0) return base * (1e3 + 1e3 * contention_ * (uses_[arc] + 1));
        const int over = uses_[arc] + 1 - room_[arc];
        // Scarce links cost slightly more.
        return base * (1 + 0.01 * (uses_[arc] + 1) / room_[arc]) * (over > 0 ? 1 + contention_ * over : 1);
    }
    std::vector<double> prices() const {
        std::vector<double> prices(uses_.size());
        for (size_t i = 0; i < prices.size(); ++i) prices[i] = price(i);
        if (!request_.pairs) return prices;
        std::vector<double> both(prices.size());
        for (size_t i = 0; i < both.size(); ++i) both[i] = (prices[i] + prices[i ^ 1]) / 2;
        return both;
    }

    PackedRing cheapest(size_t index) {
        const std::vector<double> now = prices();
        const int sites = int(fabric_.sites().size());
        std::vector<std::vector<PricedRoute>> between;
        for (int site = 0; site < sites && sites > 1; ++site)
            between.push_back(fabric_.routes(site, RouteScope::within, now, -1, steps_));
        const PackedRing* given = request_.given.empty() ? nullptr : &request_.given[index];
        if (!outside_) return around(between, {}, {}, given).second;
        if (given || !request_.one_port) {
            const auto out = leave(now, given ? given->exit : -1), in = arrive(now, given ? given->entry : -1);
            return around(between, out, in, given).second;
        }
        // Routes are searched through the least used ports, and a cycle through those of them with the cheapest routes.
        std::vector<int> ports = fabric_.ports();
        const auto demand = [&](int port) {
            double sum = 0;
            for (size_t i = 0; i < now.size(); ++i)
                if (fabric_.arcs()[i].source == port || fabric_.arcs()[i].target == port) sum += now[i];
            return sum;
        };
        const size_t ports_tried = fabric_.sites().size() > 64 ? 2 : 8;
        if (ports.size() > ports_tried) {
            std::vector<std::pair<double, int>> by_demand;
            for (const int port : ports) by_demand.emplace_back(demand(port), port);
            std::stable_sort(by_demand.begin(), by_demand.end(),
                             [](const auto& a, const auto& b) { return a.first < b.first; });
            for (size_t i = 0; i < ports_tried; ++i) ports[i] = by_demand[i].second;
            ports.resize(ports_tried);
        }
        struct PortPair {
            double price;
            std::vector<PricedRoute> out, in;
        };
        const auto cheaper = [](const PricedRoute& one, const PricedRoute& other) { return one.price < other.price; };
        std::vector<PortPair> ways;
        for (const int port : ports) {
            PortPair way{0, leave(now, port), arrive(now, port)};
            way.price = std::min_element(way.out.begin(), way.out.end(), cheaper)->price +
                        std::min_element(way.in.begin(), way.in.end() - 1, cheaper)->price;
            ways.push_back(std::move(way));
        }
        std::stable_sort(ways.begin(), ways.end(),
                         [](const PortPair& a, const PortPair& b) { return a.price < b.price; });
        std::pair<double, PackedRing> best{infinite, {}};
        for (size_t i = 0; i < ways.size() && (i < ports_most || best.first == infinite); ++i) {
            auto by = around(between, ways[i].out, ways[i].in, nullptr);
            if (by.first < best.first - 1e-9) best = std::move(by);
        }
        return best.second;
    }
    std::vector<PricedRoute> leave(const std::vector<double>& now, int port) {
        std::vector<PricedRoute> routes;
        for (size_t site = 0; site < fabric_.sites().size(); ++site)
            routes.push_back(fabric_.routes(int(site), RouteScope::leaving, now, port, steps_).back());
        return routes;
    }
    std::vector<PricedRoute> arrive(const std::vector<double>& now, int port) {
        return fabric_.routes(int(fabric_.sites().size()), RouteScope::arriving, now, port, steps_);
    }
    // With its cost. Place 0 is the outside, if there is one. `out` and `in` are by site.
    std::pair<double, PackedRing> around(const std::vector<std::vector<PricedRoute>>& between,
                                         const std::vector<PricedRoute>& out, const std::vector<PricedRoute>& in,
                                         const PackedRing* given) {
        const int sites = int(fabric_.sites().size()), shift = outside_ ? 1 : 0;
        const auto route = [&](int from, int to) -> const PricedRoute& {
            if (outside_ && from == 0) return in[size_t(to - 1)];
            if (outside_ && to == 0) return out[size_t(from - 1)];
            return between[size_t(from - shift)][size_t(to - shift)];
        };
        Cycle cycle;
        if (given) {
            if (outside_) cycle.order.push_back(0);
            for (const int site : given->order) cycle.order.push_back(site + shift);
        } else {
            CostMatrix costs(sites + shift);
            for (int from = 0; from < costs.places; ++from)
                for (int to = 0; to < costs.places; ++to)
                    costs.at(from, to) = from == to ? infinite : route(from, to).price;
            cycle = cheapest_cycle(costs, steps_);
        }
        PackedRing ring;
        if (cycle.order.empty() || cycle.cost == infinite) return {infinite, {}};
        for (size_t i = 0; i < cycle.order.size(); ++i) {
            const int from = cycle.order[i], to = cycle.order[(i + 1) % cycle.order.size()];
            if (!outside_ || from != 0) ring.order.push_back(from - shift);
            if (from == to) continue;
            const PricedRoute& hop = route(from, to);
            if (hop.price == infinite) return {infinite, {}};
            const bool outward = outside_ && (from == 0 || to == 0);
            PathClass& farthest = outward ? ring.outward : ring.within;
            farthest = std::max(farthest, hop.path_class);
            if (outward) (from == 0 ? ring.entry : ring.exit) = port_on(hop.arcs);
            ring.routes.push_back(hop.arcs);
        }
        return {cycle.cost, std::move(ring)};
    }
    int port_on(const std::vector<int>& arcs) const {
        for (const int arc : {arcs.front(), arcs.back()})
            for (const int node : {fabric_.arcs()[size_t(arc)].source, fabric_.arcs()[size_t(arc)].target})
                if (fabric_.graph().node(node).kind == NodeKind::port) return node;
        return -1;
    }

    // Whether it is better than the best so far.
    bool keep_best() {
        double gbs = infinite;
        int narrowest = -1;
        for (size_t i = 0; i < uses_.size(); ++i) {
            if (uses_[i] == 0 || fabric_.arcs()[i].gbs / uses_[i] >= gbs) continue;
            gbs = fabric_.arcs()[i].gbs / uses_[i];
            narrowest = int(i);
        }
        if (narrowest < 0 || gbs <= best_.ring_gbs) return false;
        best_ = {gbs, rings_, narrowest, uses_};
        if (!request_.pairs) return true;
        best_.rings.clear();
        for (const PackedRing& ring : rings_) {
            best_.rings.push_back(ring);
            best_.rings.push_back(reversed(ring));
        }
        return true;
    }
    static PackedRing reversed(const PackedRing& ring) {
        PackedRing back = ring;
        std::reverse(back.order.begin(), back.order.end());
        std::swap(back.entry, back.exit);
        std::reverse(back.routes.begin(), back.routes.end());
        // The last route of a ring leads to its first place, which is now the last one.
        const bool closed = ring.entry < 0 && !back.routes.empty();
        if (closed) std::rotate(back.routes.begin(), back.routes.begin() + 1, back.routes.end());
        for (auto& route : back.routes) {
            std::reverse(route.begin(), route.end());
            for (int& arc : route) arc ^= 1;
        }
        return back;
    }

    const RoutingGraph& fabric_;
    const PackingRequest& request_;
    int64_t& steps_;
    bool outside_;
    std::vector<int> room_, uses_;  // of each arc, in rings
    std::vector<double> history_;
    std::vector<PackedRing> rings_;  // with pairs, the first of each
    double contention_ = 0.5;
    Packing best_;
};

}  // namespace

double tree_gbs(const RoutingGraph& fabric, const std::vector<PackedRing>& chains) {
    std::vector<int> uses(fabric.arcs().size());
    // A tree without a partner uses only its inner places.
    const bool alone = chains.size() % 2 == 1;
    for (const PackedRing& chain : chains)
        for (size_t hop = 0; hop + 1 < chain.routes.size(); ++hop)
            for (const int arc : chain.routes[hop])
                for (const int each : {arc, arc ^ 1})
                    uses[size_t(each)] +=
                        chain.entry >= 0 && hop == 0 ? (alone && &chain == &chains.back() ? 3 : 2) : 1;
    double gbs = infinite;
    for (size_t i = 0; i < uses.size(); ++i)
        if (uses[i] > 0) gbs = std::min(gbs, fabric.arcs()[i].gbs / uses[i]);
    return gbs == infinite ? 0 : gbs;
}

Packing pack(const RoutingGraph& fabric, const PackingRequest& request, int64_t& steps) {
    return Packer(fabric, request, steps).run();
}

}  // namespace weft::internal::topology
