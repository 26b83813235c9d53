// timeline.hpp: a run of schedules as a picture: a track for each block of each rank, a box for each step that moves bytes, an
// arrow for each message, over time.
#pragma once
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/schedule/schedule.hpp"
#include "src/simulator/simulator.hpp"
#include "tools/pictures/svg.hpp"

namespace weft::internal::tools {

constexpr size_t steps_drawn_most = 1'200;
constexpr size_t tracks_drawn_most = 96;

struct DrawnRun {
    std::vector<Schedule> schedules;   // of all ranks, without fused instructions
    std::vector<SimulatedStep> steps;  // of all ranks, in the order of their ends
    uint64_t tiles = 1;
    std::string title, subtitle;
};

// weftInvalidUsage: nothing to draw, or more than one could read.
Status draw_timeline(Svg& svg, const DrawnRun& run, Point at);

}  // namespace weft::internal::tools
