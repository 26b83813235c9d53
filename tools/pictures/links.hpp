// links.hpp: how links look in pictures: a colour for each kind, width by what they carry, and the legend of those drawn.
#pragma once
#include <map>
#include <set>

#include "tools/pictures/svg.hpp"
#include "topology/model/graph.hpp"

namespace weft::internal::tools {

// Pixels: less than in proportion, for links of one machine differ by factors of a hundred.
double line_width(double gbs);

class LinkLegend {
  public:
    // How such a link is drawn; the legend has it from then on.
    Stroke stroke(topology::LinkKind kind, double gbs, bool assumed);
    // In rows of at most so many pixels.
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
