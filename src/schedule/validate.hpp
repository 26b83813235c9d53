// validate.hpp: checks that a single schedule is well formed: every operand is in range and fits its instruction, and
// every unused field has its default. All other code relies on this. The checker proves the meaning.
#pragma once
#include <optional>
#include <string>

#include "src/base/result.hpp"
#include "src/schedule/schedule.hpp"

namespace weft::internal {

// Limits of a schedule, so that a file from any source costs time and memory in proportion to its length.
inline constexpr size_t name_letters_most = 256;
// Only ASCII, so that names are the same on all ranks with any locale.
constexpr bool is_name_letter(char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
}
constexpr bool is_name_sign(char letter) {
    return is_name_letter(letter) || (letter >= '0' && letter <= '9') || letter == '_';
}
inline constexpr int32_t ranks_most = 1 << 20;
inline constexpr int32_t channels_most = 1 << 10;
inline constexpr int32_t chunks_most = 1 << 24;
inline constexpr int32_t tiles_most = 1 << 16;
inline constexpr int32_t fifo_depth_most = 1 << 16;
inline constexpr int32_t cells_of_scratch_most = 1 << 16;
inline constexpr int32_t repeat_most = 1 << 24;
inline constexpr int32_t ago_most = 1 << 16;

struct Objection {
    int block = -1;  // -1: the header of the schedule
    int step = -1;   // -1: the header of the block
    std::string sentence;
};

std::optional<Objection> find_objection(const Schedule& schedule);
// weftInvalidArgument: the sentence names rank, block, step and instruction.
Status validate(const Schedule& schedule);
// Whether executors can run it. Expansions of fused instructions are only for proofs. weftInvalidArgument as above.
Status check_runnable(const Schedule& schedule);

}  // namespace weft::internal
