#include "src/schedule/schedule.hpp"

namespace weft {

size_t largest_tile_bytes(const Schedule& schedule, size_t slot_bytes) {
    if (schedule.fifo_depth == 0) return SIZE_MAX;
    const unsigned shares = unsigned(schedule.chunks / schedule.parts());
    const size_t most = size_t((unsigned __int128)slot_bytes * shares / unsigned(schedule.span));
    return most < 64 ? most : most / 64 * 64;
}

bool board_of_all(const Schedule& schedule) { return schedule.board.size() == size_t(schedule.ranks); }

bool has_scratch(const Schedule& schedule) {
    for (const Block& block : schedule.blocks)
        for (const Instruction& it : block.instructions)
            if ((it.source | it.targets) & Buffer::scratch) return true;
    return false;
}

size_t scratch_bytes(const Schedule& schedule, size_t tile_bytes) {
    const int parts = schedule.parts();
    if (schedule.scratch > 0) return size_t(schedule.scratch) * cell_bytes(tile_bytes, schedule.chunks / parts);
    return has_scratch(schedule) ? size_t(parts) * tile_bytes : 0;
}

const char* name_of(Opcode opcode) {
    switch (opcode) {
#define WEFT_INSTRUCTION(name, kind, uses, help) \
    case Opcode::name:                           \
        return #name;
#include "src/schedule/instruction.def"
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

OpcodeKind kind_of(Opcode opcode) {
    switch (opcode) {
#define WEFT_INSTRUCTION(name, kind, uses, help) \
    case Opcode::name:                           \
        return OpcodeKind::kind;
#include "src/schedule/instruction.def"
#undef WEFT_INSTRUCTION
    }
    return OpcodeKind::local;
}

const char* uses_of(Opcode opcode) {
    switch (opcode) {
#define WEFT_INSTRUCTION(name, kind, uses, help) \
    case Opcode::name:                           \
        return uses;
#include "src/schedule/instruction.def"
#undef WEFT_INSTRUCTION
    }
    return "";
}

}  // namespace weft
