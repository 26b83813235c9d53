// text.hpp: schedules as text for reading, comparing and editing. read_text reads what write_text writes as an equal
// schedule.
//
//     schedule ring all_reduce rank 0 of 4 channels 1 chunks 4
//     block channel 0 source 3 target 1
//       0 send input[3]
//       1 recv_reduce_send input[(2 - i) mod 4] repeat 2
//
// A line is a schedule, a block of the schedule above it, or an instruction of the block above it. The number of an
// instruction is optional. `i` is the iteration. `#` begins a comment.
//
// A header may add:
// * `root 2`, of a rooted collective.
// * `fifo 2`, `tiles 3`, `span 4`, and `scratch 8` (cells), as in Schedule.
// * `bytes 4096 to 65536`: the messages that the schedule is for. Without `to` there is no upper end.
// * `board`: a flag block of all ranks. `board 0 1`: a flag block of these ranks.
//
// An instruction may have:
// * `[4 count 3]`: a span. `[(6) mod 8 count 3]`: a span that wraps around: 6, 7, 0.
// * `of rank 2`: a copy from that rank's slot. `into 3`: the targets' chunk of a copy. `left` and `tile 1`.
// * `scratch[4 at 7]` and `-> scratch at 7`: cell 7, if the header has `scratch`.
// * `after 0.2`: runs after step 2 of block 0. `after 0.2 ago 3`: of the run three runs before.
//
// Reading takes time and memory in proportion to the text. `board` without a list has a bound on its number of ranks.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"
#include "src/schedule/schedule.hpp"

namespace weft::internal {

std::string write_text(const Schedule& schedule);
std::string write_text(std::span<const Schedule> schedules);
// Each schedule is valid (validate.hpp). weftInvalidArgument: the sentence begins with line and column, both from 1.
Result<std::vector<Schedule>> read_texts(std::string_view text);
Result<Schedule> read_text(std::string_view text);  // exactly one

// An instruction as in its line. With an iteration: the operands of that iteration.
std::string text_of(const Instruction& instruction);
std::string text_of(const Instruction& instruction, int iteration);

}  // namespace weft::internal
