// early_receives.hpp: finds receives whose data may come to the output before they are executed. A network writes messages
// straight there while earlier instructions of this rank still run, so none of them may use that memory.
#pragma once
#include <cstdint>
#include <vector>

#include "src/schedule/schedule.hpp"

namespace weft::internal {

enum class Early : uint8_t {
    no,
    out_of_place,  // if input and output are different memory
    always,
};
// By block and instruction; empty if there is none.
using EarlyReceives = std::vector<std::vector<Early>>;
EarlyReceives find_early_receives(const Schedule& schedule);

}  // namespace weft::internal
