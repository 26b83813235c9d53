// timeline.hpp: draws a run of schedules over time.
// Each block of each rank has a track, each step that moves bytes a box, each message an arrow.
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

// weftInvalidUsage: there is nothing to draw, or the picture would be too large to read.
Status draw_timeline(Svg& svg, const DrawnRun& run, Point at);

}  // namespace weft::internal::tools
