#include "src/schedule/schedule.hpp"

namespace weft::internal {

// Chunks are whole cache lines. The result holds for all shorter tiles, whose pieces of a message are not longer,
// whatever the rounding.
size_t largest_tile_bytes(const Schedule& schedule, size_t slot_bytes) {
    if (schedule.fifo_depth == 0) return SIZE_MAX;
    constexpr size_t line = 64;
    const size_t shares = size_t(schedule.chunks / schedule.parts()), span = size_t(schedule.span);
    if (const size_t lines = slot_bytes / (line * span); lines > 0) return lines * line * shares;
    // The two pieces of a message may each be rounded up by less than one line.
    const size_t room = slot_bytes > 2 * line ? slot_bytes - 2 * line : slot_bytes;
    const size_t most = size_t((unsigned __int128)room * shares / span);
    return most < line ? most : most / line * line;
}

bool shared_by_all(const Schedule& schedule) { return schedule.shared_ranks.size() == size_t(schedule.ranks); }

static bool is_only(Opcode opcode, const Schedule& schedule) {
    return schedule.blocks.size() == 1 && schedule.blocks[0].instructions.size() == 1 &&
           schedule.blocks[0].instructions[0].opcode == opcode;
}
bool is_one_shot(const Schedule& schedule) { return is_only(Opcode::one_shot, schedule); }
bool is_two_shot(const Schedule& schedule) { return is_only(Opcode::two_shot, schedule); }

bool has_scratch(const Schedule& schedule) {
    for (const Block& block : schedule.blocks)
        for (const Instruction& it : block.instructions)
            if ((it.source | it.targets) & Buffer::scratch) return true;
    return false;
}

size_t scratch_bytes(const Schedule& schedule, size_t tile_bytes) {
    const int parts = schedule.parts();
    if (schedule.scratch > 0) return size_t(schedule.scratch) * cell_bytes(tile_bytes, schedule.chunks / parts);
    return has_scratch(schedule) ? size_t(schedule.wide) * size_t(parts) * tile_bytes : 0;
}

size_t shared_slot_bytes(const Schedule& schedule, size_t tile_bytes) {
    return size_t(schedule.wide) * size_t(schedule.parts()) * tile_bytes;
}

const char* name_of(Opcode opcode) {
    switch (opcode) {
#define WEFT_INSTRUCTION(name, kind, uses, help) \
    case Opcode::name:                           \
        return #name;
#include "src/schedule/opcode.def"
#undef WEFT_INSTRUCTION
    }
    return "unknown instruction";
}

const char* name_of(Buffer buffer) {
    switch (buffer) {
        case Buffer::none: return "nothing";
        case Buffer::input: return "input";
        case Buffer::output: return "output";
        case Buffer::slot: return "slot";
        case Buffer::inputs: return "inputs";
        case Buffer::outputs: return "outputs";
        case Buffer::either: return "either";
        case Buffer::scratch: return "scratch";
    }
    return "unknown buffer";
}

}  // namespace weft::internal
