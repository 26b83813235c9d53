#include "src/gpu/domain/program.hpp"

#include <fmt/core.h>

#include <bit>

namespace weft::internal::cuda {

std::string refusal(const Schedule& schedule) {
    if (schedule.blocks.size() > size_t(blocks_max))
        return fmt::format("{} blocks, and a kernel has at most {}", schedule.blocks.size(), blocks_max);
    for (const Block& block : schedule.blocks)
        for (const Instruction& it : block.instructions) {
            const OpcodeKind kind = kind_of(it.opcode);
            if (kind == OpcodeKind::flag || kind == OpcodeKind::fused || it.opcode == Opcode::reduce ||
                it.source == Buffer::slot || (it.targets & ~(Buffer::output | Buffer::scratch)) != 0)
                return fmt::format("{} works on a board", name_of(it.opcode));
        }
    return {};
}

Program program_of(const Schedule& schedule) {
    Program program;
    for (const Block& block : schedule.blocks) {
        StepBlock lines{};
        lines.first = int32_t(program.instructions.size());
        lines.count = int32_t(block.instructions.size());
        lines.source.peer = block.source;
        lines.target.peer = block.target;
        program.blocks.push_back(lines);
        for (const Instruction& it : block.instructions) {
            program.instructions.push_back(it);
            program.dependent |= it.after.block >= 0;
        }
    }
    return program;
}

uint32_t slots_of(const Schedule& schedule) { return std::bit_ceil(uint32_t(schedule.fifo_depth)); }

}  // namespace weft::internal::cuda
