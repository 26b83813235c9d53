#include "tools/pictures/links.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

namespace weft::internal::tools {
namespace {

using topology::LinkKind;

// Colours that colour-blind readers can tell apart. Source: Okabe and Ito, "Color universal design", 2008.
std::string_view link_colour(LinkKind kind) {
    switch (kind) {
        case LinkKind::nvlink: return "#009e73";
        case LinkKind::c2c: return "#cc79a7";
        case LinkKind::pci: return "#0072b2";
        case LinkKind::sys: return "#d55e00";
        case LinkKind::net: return "#e69f00";
        case LinkKind::local: break;
    }
    return "#777777";
}

const char* caption_of(LinkKind kind) {
    switch (kind) {
        case LinkKind::nvlink: return "NVLink";
        case LinkKind::c2c: return "C2C";
        case LinkKind::pci: return "PCI";
        case LinkKind::sys: return "between cpus";
        case LinkKind::net: return "network";
        case LinkKind::local: break;
    }
    return "within a device";
}

constexpr size_t looks_most = 4;  // for each kind; of more, the legend has the least, the middle and the largest

}  // namespace

double line_width(double gbs) { return std::clamp(0.42 * std::pow(gbs, 0.55), 0.8, 18.0); }

Stroke LinkLegend::stroke(LinkKind kind, double gbs, bool assumed) {
    if (kind == LinkKind::local) gbs = 0;  // its bandwidth is unknown
    drawn_[kind].insert({gbs, assumed});
    return {link_colour(kind), kind == LinkKind::local ? 2 : line_width(gbs), assumed};
}

void LinkLegend::draw(Svg& svg, Point at, double width) const {
    constexpr double sample = 28, row = 22;
    Point next = at;
    for (const auto& [kind, looks] : drawn_) {
        std::vector<Look> told(looks.begin(), looks.end());
        if (told.size() > looks_most) told = {told.front(), told[told.size() / 2], told.back()};
        for (const Look& look : told) {
            std::string text = caption_of(kind);
            if (kind != LinkKind::local) text += fmt::format(" {}{:.4g} GB/s", look.assumed ? "~" : "", look.gbs);
            const double wide = sample + 8 + width_of(text, 11) + 18;
            if (next.x > at.x && next.x + wide > at.x + width) next = {at.x, next.y + row};
            const double thick = kind == LinkKind::local ? 2 : line_width(look.gbs);
            svg.line({next.x, next.y}, {next.x + sample, next.y}, {link_colour(kind), thick, look.assumed});
            svg.text({next.x + sample + 6, next.y + 4}, text);
            next.x += wide;
        }
    }
}

}  // namespace weft::internal::tools
