// schedule_picture.hpp: schedules of all ranks run by the simulator on hosts of one kind, and drawn as tracks over time.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "src/base/result.hpp"
#include "src/schedule/schedule.hpp"

namespace weft::internal::tools {

struct PictureRequest {
    std::string file;  // empty: none is wanted
    std::string host = "cpu-100g";
    uint64_t bytes = 256 << 10;  // of the whole
    int hosts = 1;
};

// As an SVG file's text. weftInvalidArgument: hosts that cannot be; weftInvalidUsage: more than can be drawn.
Result<std::string> picture_of(const std::vector<Schedule>& schedules, const Algorithm& row,
                               const PictureRequest& request);

}  // namespace weft::internal::tools
