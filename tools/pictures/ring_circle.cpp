#include "tools/pictures/ring_circle.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "topology/search/search_text.hpp"

namespace weft::internal::tools {
namespace {

using namespace topology;

constexpr double ring_letters = 9, name_width_most = 110, stop_height = 16;
constexpr double between_stops = 30, between_many = 8;  // many: more than 16
constexpr double port_distance = 38;                    // from a stop to its port's name

std::string name_of(const Graph& graph, int node) {
    return fitted(short_name(graph, node), name_width_most, ring_letters);
}

double stop_width(const Graph& graph, int node) { return width_of(name_of(graph, node), ring_letters) + 8; }

double radius_of(const KindChannels& kind) {
    if (kind.sites.size() == 1) return 1;
    double round = 0;  // length of all stops side by side
    for (const int site : kind.sites)
        round += stop_width(*kind.machine_graph.graph, site) + (kind.sites.size() > 16 ? between_many : between_stops);
    return std::max(34.0, round / 2 / std::numbers::pi);
}

}  // namespace

RingCircle::RingCircle(Svg& svg, const KindChannels& kind, std::string_view colour, double width)
    : svg_(svg), kind_(kind), colour_(colour), width_(width) {}

Point RingCircle::size_of(const KindChannels& kind, const PackedRing& ring) {
    const Graph& graph = *kind.machine_graph.graph;
    Point beyond{0, stop_height / 2};
    for (const int site : kind.sites) beyond.x = std::max(beyond.x, stop_width(graph, site) / 2);
    for (const int port : {ring.entry, ring.exit})
        if (port >= 0)
            beyond = {std::max(beyond.x, port_distance + width_of(name_of(graph, port), ring_letters)),
                      port_distance + 12};
    return {2 * (radius_of(kind) + beyond.x) + 12, 2 * (radius_of(kind) + beyond.y)};
}

void RingCircle::draw(const PackedRing& ring, Point centre) {
    const double radius = radius_of(kind_);
    std::vector<Stop> stops;
    for (size_t site = 0; site < kind_.sites.size(); ++site) {
        const double angle = 2 * std::numbers::pi * double(site) / double(kind_.sites.size()) - std::numbers::pi / 2;
        stops.push_back({{centre.x + radius * std::cos(angle), centre.y + radius * std::sin(angle)},
                         stop_width(*kind_.machine_graph.graph, kind_.sites[site])});
    }
    const size_t hops = ring.order.size() - (ring.entry >= 0 ? 1 : 0);
    for (size_t hop = 0; hop < hops; ++hop) {
        const auto from = size_t(ring.order[hop]), to = size_t(ring.order[(hop + 1) % ring.order.size()]);
        if (from != to) draw_hop(stops[from].at, stops[to], centre);
    }
    const auto first = size_t(ring.order.front()), last = size_t(ring.order.back());
    const double aside = first == last ? 9 : 0;
    if (ring.entry >= 0) draw_port(ring.entry, true, stops[first], centre, -aside);
    if (ring.exit >= 0) draw_port(ring.exit, false, stops[last], centre, aside);
    for (size_t site = 0; site < stops.size(); ++site) draw_stop(kind_.sites[site], stops[site]);
}

void RingCircle::draw_stop(int node, const Stop& stop) {
    const auto [at, width] = stop;
    svg_.rectangle({at.x - width / 2, at.y - stop_height / 2, width, stop_height}, "#ffffff", {colour_, 1.2}, 5);
    svg_.text({at.x, at.y + 3}, name_of(*kind_.machine_graph.graph, node), {ring_letters, Anchor::middle});
}

// The line bends towards the centre, away from stops on its way. A line through the centre bends to its right.
// Thus lines there and back are separate. The line ends at the border of the stop.
void RingCircle::draw_hop(Point from, const Stop& to, Point centre) {
    const double length = std::hypot(to.at.x - from.x, to.at.y - from.y);
    const Point along{(to.at.x - from.x) / length, (to.at.y - from.y) / length};
    const double right = along.x * (centre.y - from.y) - along.y * (centre.x - from.x);
    const double bend = std::copysign(std::min(10.0, length / 10), right > -0.1 ? 1 : -1);
    const auto on_way = [&](double share, double aside) {
        return Point{from.x + along.x * share * length - along.y * aside,
                     from.y + along.y * share * length + along.x * aside};
    };
    const double border = 2 + std::min(to.width / 2 / std::max(1e-9, std::abs(along.x)),
                                       stop_height / 2 / std::max(1e-9, std::abs(along.y)));
    // Near its end, a curve leaves the straight line by three times its bend, multiplied by the share of the way.
    const auto near_end = [&](double distance) { return on_way(1 - distance / length, bend * 3 * distance / length); };
    const Point neck = near_end(border + head());
    svg_.curve(from, on_way(1.0 / 3, bend), on_way(2.0 / 3, bend), neck, {colour_, width_});
    svg_.arrow_head(neck, near_end(border), head(), colour_);
}

// Places the port outside the circle, `aside` of the line from the centre through the stop.
void RingCircle::draw_port(int node, bool entry, const Stop& stop, Point centre, double aside) {
    const double length = std::hypot(stop.at.x - centre.x, stop.at.y - centre.y);
    const Point out{(stop.at.x - centre.x) / length, (stop.at.y - centre.y) / length};
    const auto away = [&](double distance) {
        return Point{stop.at.x + out.x * distance - out.y * aside, stop.at.y + out.y * distance + out.x * aside};
    };
    const double border = std::abs(out.x) > 0.9 ? stop.width / 2 + 2 : stop_height / 2 + 3;
    const Point inner = away(border), outer = away(port_distance - 4), name = away(port_distance);
    const Point from = entry ? outer : inner, to = entry ? inner : outer;
    svg_.line(from, {to.x - (to.x - from.x) / 3, to.y - (to.y - from.y) / 3}, {colour_, width_});
    svg_.arrow_head(from, to, head(), colour_);
    const Anchor anchor = out.x > 0.4 ? Anchor::start : out.x < -0.4 ? Anchor::end : Anchor::middle;
    const double down = out.y > 0.4 ? 8 : out.y < -0.4 ? 0 : 3;
    svg_.text({name.x + 2 * aside * std::abs(out.y), name.y + down}, name_of(*kind_.machine_graph.graph, node),
              {ring_letters, anchor, colour_});
}

}  // namespace weft::internal::tools
