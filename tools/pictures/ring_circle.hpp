// ring_circle.hpp: draws one ring of a search as a circle of stops with an arrow for each hop.
// A chain between machines also shows the ports where it enters and leaves.
#pragma once
#include <string_view>
#include <vector>

#include "tools/pictures/svg.hpp"
#include "topology/search/search.hpp"

namespace weft::internal::tools {

class RingCircle {
  public:
    RingCircle(Svg& svg, const topology::KindChannels& kind, std::string_view colour, double width);
    // Width and height, including the text around the circle.
    static Point size_of(const topology::KindChannels& kind, const topology::PackedRing& ring);
    // Stops are placed clockwise by number, so that readers can compare rings by their lines.
    void draw(const topology::PackedRing& ring, Point centre);

  private:
    struct Stop {
        Point at;
        double width;
    };
    void draw_stop(int node, const Stop& stop);
    void draw_hop(Point from, const Stop& to, Point centre);
    void draw_port(int node, bool entry, const Stop& stop, Point centre, double aside);
    double head() const { return 5 + width_; }

    Svg& svg_;
    const topology::KindChannels& kind_;
    std::string_view colour_;
    double width_;
};

}  // namespace weft::internal::tools
