// validate.hpp: whether a schedule is well formed by itself: every operand in range and meant for its instruction,
// every field that an instruction does not use at its default. What all the rest may rely on; the checker proves the
// meaning.
#pragma once
#include <optional>
#include <string>

#include "src/base/result.hpp"
#include "src/schedule/schedule.hpp"

namespace weft::internal {

// Most that a schedule may say, so that a file from anywhere costs no more than its length.
inline constexpr size_t name_letters_most = 256;
// ASCII alone: names are the same on all ranks, whatever their locales.
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
    int block = -1;  // -1: the schedule's header
    int step = -1;   // -1: the block's header
    std::string sentence;
};

std::optional<Objection> find_objection(const Schedule& schedule);
// weftInvalidArgument, naming rank, block, step and instruction.
Status validate(const Schedule& schedule);
// Whether executors can run it: the expansions of fused instructions are for proofs. weftInvalidArgument likewise.
Status check_runnable(const Schedule& schedule);

}  // namespace weft::internal
