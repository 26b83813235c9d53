// links.hpp: the style of links in pictures: a colour for each kind, a width for the bandwidth, and the legend.
#pragma once
#include <map>
#include <set>

#include "tools/pictures/svg.hpp"
#include "topology/model/graph.hpp"

namespace weft::internal::tools {

// Pixels. The width grows less than the bandwidth because the links of a machine differ by factors of a hundred.
double line_width(double gbs);

class LinkLegend {
  public:
    // The style of such a link, which is added to the legend.
    Stroke stroke(topology::LinkKind kind, double gbs, bool assumed);
    // Draws the legend in rows of at most `width` pixels.
    void draw(Svg& svg, Point at, double width) const;

  private:
    struct Look {
        double gbs;
        bool assumed;
        auto operator<=>(const Look&) const = default;
    };
    std::map<topology::LinkKind, std::set<Look>> drawn_;
};

}  // namespace weft::internal::tools
