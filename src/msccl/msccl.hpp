// msccl.hpp: reads algorithms in MSCCL's XML as schedules. A file names buffers and offsets. A schedule names chunks by
// their place in the whole, because chunks differ in size. So the reader tracks the identity of each chunk through the
// program (msccl_flow.hpp). A chunk at another place than its own goes to a cell of scratch.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"
#include "src/checker/checker.hpp"
#include "src/schedule/schedule.hpp"

namespace weft::internal {

// The schedules serve calls in place and out of place, whatever the file says. A step that reads a buffer before the
// rank has written there reads the input. If that would be too late in place, the input is saved before.
struct MscclProgram {
    // the file's name, with _ for all but ASCII alphanumerics; the name of the algorithm
    std::string name;
    Collective collective = Collective::none;
    int32_t root = -1;
    size_t min_bytes = 0, max_bytes = SIZE_MAX;  // message sizes of the file, both included
    std::vector<Schedule> schedules;             // by rank, each valid (validate.hpp); check_set proves them
    StepName step_name = {};                     // lines and numbers of the file
    std::string assumed = {};  // a clause: the assumed value of something that the file does not state; or empty
};

// If ranks would sum in different orders, additions to one place are sorted by rank where that makes the results equal.
// `any_order`: sums keep the file's order.
// Reentrant. weftInvalidArgument: the sentence begins with line and column, both from 1, and names the remedy.
Result<MscclProgram> read_msccl(std::string_view xml, bool any_order = false);

struct ScheduleFile {
    std::vector<Schedule> schedules;
    StepName step_name = {};   // none: the steps of a text have the numbers of the schedules
    std::string assumed = {};  // as in MscclProgram

    // Moves the schedules out: one set for each algorithm, collective, number of ranks, root and range of messages.
    std::vector<std::vector<Schedule>> take_sets();
    // check_set() of some of the schedules, with the file's names of steps.
    Status check(std::span<const Schedule> set, const DirectMode& mode, CheckOptions options, Proved* proved) const;
};

// Reads schedules of either language: text (text.hpp) or XML. Only XML begins with `<`. The headers of the schedules
// contain the range of messages.
Result<ScheduleFile> read_schedules(std::string_view text, bool any_order = false);

}  // namespace weft::internal
