// msccl.hpp: algorithms as researchers write them, MSCCL's XML, read as schedules. A file names buffers and offsets; a
// schedule names chunks by their place in the whole, for they differ in size. So the reader walks the file's program
// with the chunks' identities (msccl_flow.hpp), and what lies where its identity has no place goes to a cell of
// scratch.
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

// Whatever the file says of in place, the schedules serve both: what a step reads of a buffer before the rank has
// written there it reads of the input, and where in place that would come too late the input is saved beforehand.
struct MscclProgram {
    std::string name;  // the file's, with _ for all but letters and digits; the schedules' algorithm
    Collective collective = Collective::none;
    int32_t root = -1;
    size_t min_bytes = 0, max_bytes = SIZE_MAX;  // of messages that the file is meant for, both included
    std::vector<Schedule> schedules;             // by rank, each valid (validate.hpp); check_set proves them
    StepName step_name = {};                     // by the file's lines and numbers
    std::string assumed = {};  // a clause: what the file does not state, and the value assumed; or empty
};

// Where ranks would sum in different orders, steps that add to one place are put into the order of ranks if that makes
// them agree. `any_order`: sums stay as the file has them.
// Reentrant. weftInvalidArgument: the sentence begins with line and column, both from 1, and says what to do.
Result<MscclProgram> read_msccl(std::string_view xml, bool any_order = false);

struct ScheduleFile {
    std::vector<Schedule> schedules;
    StepName step_name = {};   // none: a text's steps have the schedules' numbers
    std::string assumed = {};  // as MscclProgram has it

    // Moves the schedules out: one set for each algorithm, collective, number of ranks, root and range of messages.
    std::vector<std::vector<Schedule>> take_sets();
    // check_set() of some of the schedules, in the file's words.
    Status check(std::span<const Schedule> set, const DirectMode& mode, CheckOptions options, Proved* proved) const;
};

// Schedules of either language: of text.hpp, or of XML, which begins with the one sign that no text holds; with the
// range of messages that they are for in their headers.
Result<ScheduleFile> read_schedules(std::string_view text, bool any_order = false);

}  // namespace weft::internal
