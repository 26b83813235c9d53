#include "tools/pictures/channels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tools/pictures/links.hpp"
#include "tools/pictures/ring_circle.hpp"
#include "topology/search/rank_orders.hpp"
#include "topology/search/search_text.hpp"

namespace weft::internal::tools {
namespace {

using namespace topology;

// Colours that colour-blind readers can tell apart. The ninth equals the first; rings also have names.
constexpr std::string_view colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                        "#b8860b", "#56b4e9", "#7a3e9d", "#555555"};
std::string_view colour_of(size_t number) { return colours[number % std::size(colours)]; }

// Rings that pass the same stops in the same order.
struct Alike {
    const PackedRing* ring;
    std::vector<int> numbers;
};
std::vector<Alike> alike_rings(const std::vector<PackedRing>& rings) {
    std::vector<Alike> all;
    for (size_t number = 0; number < rings.size(); ++number) {
        const auto stops = [](const PackedRing& ring) { return std::tie(ring.order, ring.entry, ring.exit); };
        auto known = std::find_if(all.begin(), all.end(),
                                  [&](const Alike& each) { return stops(*each.ring) == stops(rings[number]); });
        if (known == all.end()) known = all.insert(known, {&rings[number], {}});
        known->numbers.push_back(int(number));
    }
    return all;
}

// Text as "ring 3" or "rings 0-2, 4".
std::string title_of(const Alike& alike) {
    const std::vector<int>& numbers = alike.numbers;
    std::string text = fmt::format("{}{} ", alike.ring->entry >= 0 ? "chain" : "ring", numbers.size() == 1 ? "" : "s");
    for (size_t first = 0; first < numbers.size();) {
        size_t last = first;
        while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
        text += fmt::format("{}{}", first == 0 ? "" : ", ", numbers[first]);
        if (last > first) text += fmt::format("-{}", numbers[last]);
        first = last + 1;
    }
    return text;
}

// Draws the circles of one kind of machine in rows; returns the lower end.
double draw_rings(Svg& svg, const Channels& channels, const KindChannels& kind, Point at, double width) {
    const std::vector<Alike> rings = alike_rings(kind.packing.rings);
    if (rings.empty()) return at.y;
    if (channels.kinds.size() > 1) {
        svg.text({at.x, at.y + 12},
                 fmt::format("{} machine{} with {} stop{}:", kind.machines, kind.machines == 1 ? "" : "s",
                             kind.sites.size(), kind.sites.size() == 1 ? "" : "s"));
        at.y += 18;
    }
    if (kind.sites.size() > stops_most) {
        svg.text({at.x, at.y + 12},
                 fmt::format("Rings of {} stops are not drawn, {} are the most: `weft topology search` prints them.",
                             kind.sites.size(), stops_most));
        return at.y + 20;
    }
    Point size;
    for (const Alike& each : rings) {
        const Point its = RingCircle::size_of(kind, *each.ring);
        size = {std::max({size.x, its.x, width_of(title_of(each), 11) + 16}), std::max(size.y, its.y)};
    }
    Point next = at;
    for (size_t each = 0; each < rings.size() && each < circles_most; ++each) {
        if (next.x > at.x && next.x + size.x > at.x + width) next = {at.x, next.y + size.y + 32};
        const std::string_view colour = colour_of(each);
        svg.text({next.x + size.x / 2, next.y + 12}, title_of(rings[each]), {11, Anchor::middle, colour, true});
        RingCircle(svg, kind, colour, std::min(4.0, line_width(channels.channel_gbs)))
            .draw(*rings[each].ring, {next.x + size.x / 2, next.y + 22 + size.y / 2});
        next.x += size.x;
    }
    const double bottom = next.y + 26 + size.y;
    if (rings.size() <= circles_most) return bottom;
    svg.text({at.x, bottom + 12},
             fmt::format("and {} more: `weft topology search` prints them", rings.size() - circles_most));
    return bottom + 18;
}

// The parent of each machine in the tree; -1: the root.
std::vector<int> machines_above(const Channels& channels, const RankTree& tree) {
    std::vector<int> machine_of(size_t(channels.ranks)), above(channels.machines.size(), -1);
    for (size_t machine = 0; machine < channels.machines.size(); ++machine)
        for (const auto& site : channels.machines[machine].ranks)
            for (const int32_t rank : site) machine_of[size_t(rank)] = int(machine);
    for (size_t rank = 0; rank < tree.parent.size(); ++rank) {
        const int32_t parent = tree.parent[rank];
        if (parent >= 0 && machine_of[size_t(parent)] != machine_of[rank])
            above[size_t(machine_of[rank])] = machine_of[size_t(parent)];
    }
    return above;
}

// Draws machines side by side, each at its level of the tree.
double draw_tree(Svg& svg, const std::vector<int>& above, const std::string& title, std::string_view colour, Point at) {
    const double step = 36, rise = 34;
    const auto height_of = [&](size_t machine) {
        int height = 0;
        for (int each = above[machine]; each >= 0; each = above[size_t(each)]) ++height;
        return height;
    };
    const auto place = [&](size_t machine) {
        return Point{at.x + 18 + step * double(machine), at.y + 34 + rise * height_of(machine)};
    };
    svg.text({at.x, at.y + 12}, title, {11, Anchor::start, colour, true});
    for (size_t machine = 0; machine < above.size(); ++machine)
        if (above[machine] >= 0) svg.line(place(machine), place(size_t(above[machine])), {colour, 1.6});
    for (size_t machine = 0; machine < above.size(); ++machine) {
        const Point it = place(machine);
        svg.rectangle({it.x - 12, it.y - 9, 24, 18}, "#ffffff", {colour, 1.2}, 5);
        svg.text({it.x, it.y + 4}, fmt::format("{}", machine), {10, Anchor::middle});
    }
    return at.x + 36 + step * double(above.size());
}

void draw_trees(Svg& svg, const Channels& channels, Point at) {
    const size_t machines = channels.machines.size();
    std::string text = fmt::format("Trees: the same chains, {:.4g} GB/s reduced and handed back.", tree_gbs(channels));
    if (machines > 1) text += " Between machines, binary trees:";
    if (machines > tree_machines_most) text += fmt::format(" drawn for {} machines at most.", tree_machines_most);
    svg.text({at.x, at.y + 12}, text);
    if (machines < 2 || machines > tree_machines_most) return;
    const std::vector<RankTree> all = trees(channels);
    double x = at.x;
    for (size_t channel = 0; channel < all.size() && channel < 2; ++channel)
        x = draw_tree(svg, machines_above(channels, all[channel]), fmt::format("tree {}", channel), colour_of(channel),
                      {x, at.y + 24});
}

}  // namespace

void draw_channels(Svg& svg, const Channels& channels, Point at, double width) {
    if (channels.channel_gbs <= 0) return svg.text({at.x, at.y + 12}, "All ranks on one device: no link is needed.");
    svg.text({at.x, at.y + 12},
             fmt::format("{} channel{} of {:.4g} GB/s, {:.4g} GB/s in all: {:.1f} % of what these links can carry{}",
                         channels.channels, channels.channels == 1 ? "" : "s", channels.channel_gbs, channels.found_gbs,
                         100 * channels.ratio(), channels.alternates ? "; every second machine in reverse order" : ""),
             {12, Anchor::start, "#222222", true});
    double bottom = at.y + 26;
    for (const KindChannels& kind : channels.kinds) bottom = draw_rings(svg, channels, kind, {at.x, bottom}, width);
    draw_trees(svg, channels, {at.x, bottom + 6});
}

}  // namespace weft::internal::tools
