// text.hpp: schedules as people read, diff and edit them. What write_text writes, read_text reads back equal.
//
//     schedule ring all_reduce rank 0 of 4 channels 1 chunks 4 fifo 2
//     block channel 0 source 3 target 1
//       0 send input[3]
//       1 recv_reduce_send input[(2 - i) mod 4] repeat 2
//       2 recv_reduce_copy_send input[0] -> output finish
//
// A line is a schedule, a block of it or an instruction of that; its number may be left out. `i` is the iteration. The
// header of a rooted collective says `root 2` behind the ranks; any may say `tiles 3`, `span 4`, `scratch 8`, `bytes
// 4096 to 65536` (messages that it is for; no upper end: all from there on) and `board`, of all ranks, or `board 0 1`,
// of these; an instruction `[4 count 3]` (a span),
// `[(6) mod 8 count 3]` (a span that goes round: 6, 7, 0), `of rank 2` (copy from a slot), `into 3` (copy: the targets'
// chunk), `left`, `tile 1`, where the header says `scratch 8`, so many cells, `scratch[4 at 7]` and `-> scratch at 7`,
// `after 0.2` (block, step) and `after 0.2 ago 3` (three runs before); `#` begins a comment. Reading is bounded by the
// text's length, whatever it holds, and by a bound on ranks that `board` alone stands for.
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

// An instruction as in its line; with an iteration, the operands as they are then.
std::string text_of(const Instruction& instruction);
std::string text_of(const Instruction& instruction, int iteration);

}  // namespace weft::internal
