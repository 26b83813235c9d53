// opcode.hpp: the meaning of each opcode, from the rows of opcode.def: its waits, moves, skips and posts. The
// step machines of host and device, the simulator, the checker and the reader of MSCCL's files use only these functions.
// The device compiles this file too.
#pragma once
#include <cstdint>

namespace weft::internal {

enum class Opcode : uint8_t {
#define WEFT_INSTRUCTION(name, kind, uses, help) name,
#include "src/schedule/opcode.def"
#undef WEFT_INSTRUCTION
};
enum class OpcodeKind : uint8_t { connection, local, flag, fused };

// The opcodes of a kind, and those whose row has this use, as bits.
constexpr uint32_t opcodes_of(OpcodeKind wanted) {
    uint32_t found = 0;
#define WEFT_INSTRUCTION(name, kind, uses, help) \
    if (OpcodeKind::kind == wanted) found |= uint32_t(1) << int(Opcode::name);
#include "src/schedule/opcode.def"
#undef WEFT_INSTRUCTION
    return found;
}
constexpr uint32_t opcodes_with(char wanted) {
    uint32_t found = 0;
#define WEFT_INSTRUCTION(name, kind, uses, help) \
    for (const char use : uses)                  \
        if (use == wanted) found |= uint32_t(1) << int(Opcode::name);
#include "src/schedule/opcode.def"
#undef WEFT_INSTRUCTION
    return found;
}
// A set is a constant of the caller, so that each function below is a shift.
constexpr bool in_set(uint32_t opcodes, Opcode opcode) { return (opcodes >> int(opcode) & 1) != 0; }

constexpr OpcodeKind kind_of(Opcode opcode) {
    constexpr uint32_t connections = opcodes_of(OpcodeKind::connection), locals = opcodes_of(OpcodeKind::local),
                       flags = opcodes_of(OpcodeKind::flag);
    return in_set(connections, opcode) ? OpcodeKind::connection
           : in_set(locals, opcode)    ? OpcodeKind::local
           : in_set(flags, opcode)     ? OpcodeKind::flag
                                       : OpcodeKind::fused;
}

// Waits for a filled slot of the block's source connection, and frees it at its end.
constexpr bool receives(Opcode opcode) {
    constexpr uint32_t set = opcodes_with('s');
    return in_set(set, opcode);
}
// Waits for a free slot of the block's target connection, and fills it.
constexpr bool sends(Opcode opcode) {
    constexpr uint32_t set = opcodes_with('t');
    return in_set(set, opcode);
}
// Reads `source`.
constexpr bool reads_source(Opcode opcode) {
    constexpr uint32_t set = opcodes_with('i');
    return in_set(set, opcode);
}
// Writes `targets`.
constexpr bool writes_targets(Opcode opcode) {
    constexpr uint32_t set = opcodes_with('o');
    return in_set(set, opcode);
}
// Combines contributions, so that its result is a new value.
constexpr bool combines(Opcode opcode) {
    constexpr uint32_t set = opcodes_with('+');
    return in_set(set, opcode);
}
// Sets this rank's flag of a phase and tile.
constexpr bool posts(Opcode opcode) {
    constexpr uint32_t set = opcodes_with('p');
    return in_set(set, opcode);
}
// Waits until all ranks of the flag block have posted a phase of a tile.
constexpr bool waits(Opcode opcode) {
    constexpr uint32_t set = opcodes_with('w');
    return in_set(set, opcode);
}
// Moves chunks. If all of them are empty, both ends of a connection skip the instruction: it neither waits nor uses a
// slot. Instructions that move nothing are never skipped.
constexpr bool moves(Opcode opcode) { return sends(opcode) || writes_targets(opcode); }

// Runs after step `step` (instruction index, all its iterations) of block `block` of the same rank, in the same run of
// the schedule, or `ago` runs before. The first runs of an operation have no earlier ones, and do not wait.
struct Dependency {
    int32_t block = -1;
    int32_t step = -1;
    int32_t ago = 0;
    bool operator==(const Dependency&) const = default;
};
// Whether a step of the run that begins at tile `tile` has a run to wait for, where one run has `tiles` tiles; and the
// first tile of that run.
constexpr bool has_earlier_run(const Dependency& dependency, int tiles, uint64_t tile) {
    return tile >= uint64_t(dependency.ago) * uint64_t(tiles);
}
constexpr uint64_t earlier_run(const Dependency& dependency, int tiles, uint64_t tile) {
    return tile - uint64_t(dependency.ago) * uint64_t(tiles);
}
// The position of a block: the first tile of its run, and the step that it runs next.
struct BlockPosition {
    uint64_t tile = 0;
    int32_t step = 0;
    bool ended = false;
};
// Whether the block at `other` has done the step that `dependency` names, for a step of the run that begins at `tile`.
constexpr bool reached(const Dependency& dependency, int tiles, uint64_t tile, const BlockPosition& other) {
    if (!has_earlier_run(dependency, tiles, tile)) return true;
    const uint64_t run = earlier_run(dependency, tiles, tile);
    return other.ended || other.tile > run || (other.tile == run && other.step > dependency.step);
}

}  // namespace weft::internal
