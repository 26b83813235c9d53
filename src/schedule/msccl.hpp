// msccl.hpp: algorithms as researchers write them, MSCCL's XML, read as schedules. A file names buffers and offsets; a
// schedule names chunks by their place in the whole, for they differ in size. So the reader walks the file's program
// with the chunks' identities (msccl_flow.hpp), and what lies where its identity has no place goes to a cell of
// scratch.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"
#include "src/schedule/schedule.hpp"

namespace weft {

// Whatever the file says of in place, the schedules serve both: what a step reads of a buffer before the rank has
// written there it reads of the input, and where in place that would come too late the input is saved beforehand.
struct MscclProgram {
    std::string name;  // the file's, as far as it is letters, digits and _; the schedules' algorithm
    Collective collective = Collective::none;
    int32_t root = -1;
    size_t min_bytes = 0, max_bytes = SIZE_MAX;  // of messages that the file is meant for, both included
    std::vector<Schedule> schedules;             // by rank, each valid (validate.hpp); check_set proves them
};

// Reentrant. weftInvalidArgument: the sentence begins with line and column, both from 1, and says what to do.
Result<MscclProgram> read_msccl(std::string_view xml);

// Schedules of either language: of text.hpp, or of XML, which begins with the one sign that no text holds; with the
// range of messages that they are for in their headers.
Result<std::vector<Schedule>> read_schedules(std::string_view text);

}  // namespace weft
