// schedule_picture.hpp: simulates the schedules of all ranks on equal hosts and draws them as a timeline.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "src/base/result.hpp"
#include "src/schedule/schedule.hpp"

namespace weft::internal::tools {

struct PictureRequest {
    std::string file;  // empty: no picture
    std::string host = "cpu-100g";
    uint64_t bytes = 256 << 10;  // of the whole
    int hosts = 1;
};

// Returns the text of an SVG file. weftInvalidArgument: impossible hosts; weftInvalidUsage: too much to draw.
Result<std::string> picture_of(const std::vector<Schedule>& schedules, const Algorithm& row,
                               const PictureRequest& request);

}  // namespace weft::internal::tools
