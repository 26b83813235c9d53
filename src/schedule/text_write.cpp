// text_write.cpp: writes a Schedule as text; text_read.cpp reads it.
#include <cstdlib>

#include "src/schedule/text.hpp"

namespace weft::internal {

static std::string text_of(const Index& index) {
    if (index.start == 0 && index.modulus == 1 && index.step == 0) return fmt::format("{}", index.base);
    if (index.step == 0)
        return fmt::format("{}({}) mod {}", index.base == 0 ? "" : fmt::format("{} + ", index.base), index.start,
                           index.modulus);
    const int64_t distance = std::abs(int64_t(index.step));
    return fmt::format("{}({} {} {}i) mod {}", index.base == 0 ? "" : fmt::format("{} + ", index.base), index.start,
                       index.step < 0 ? '-' : '+', distance == 1 ? "" : fmt::format("{} ", distance), index.modulus);
}

std::string text_of(const Instruction& instruction) {
    std::string text = name_of(instruction.opcode);
    if (kind_of(instruction.opcode) == OpcodeKind::flag) {
        text += instruction.phase == 0 ? " entry" : " done";
    } else if (instruction.opcode != Opcode::nop) {
        text += fmt::format(" {}[{}{}{}]", instruction.source == Buffer::none ? "" : name_of(instruction.source),
                            text_of(instruction.chunk),
                            instruction.count == 1 ? "" : fmt::format(" count {}", instruction.count),
                            instruction.source_cell < 0 ? "" : fmt::format(" at {}", instruction.source_cell));
        if (instruction.opcode == Opcode::copy && instruction.source == Buffer::slot)
            text += " of rank " + text_of(instruction.rank);
    }
    if (instruction.targets) text += " ->";
    for (Buffer target : {Buffer::output, Buffer::slot, Buffer::outputs, Buffer::scratch})
        if (instruction.targets & target) text += fmt::format(" {}", name_of(target));
    if (instruction.target_cell >= 0) text += fmt::format(" at {}", instruction.target_cell);
    if (instruction.moves) text += " into " + text_of(instruction.into);
    if (instruction.left) text += " left";
    if (instruction.finish) text += " finish";
    if (instruction.repeat != 1) text += fmt::format(" repeat {}", instruction.repeat);
    if (instruction.tile != 0) text += fmt::format(" tile {}", instruction.tile);
    if (instruction.after != Dependency())
        text += fmt::format(" after {}.{}", instruction.after.block, instruction.after.step);
    if (instruction.after.ago != 0) text += fmt::format(" ago {}", instruction.after.ago);
    return text;
}

std::string text_of(const Instruction& instruction, int iteration) {
    Instruction now = instruction;
    now.repeat = 1;
    if (instruction.chunk.step != 0) {
        now.chunk = {instruction.chunk.base, instruction.chunk.at(iteration) - instruction.chunk.base,
                     instruction.chunk.modulus, 0};
        if (now.count == 1) now.chunk = {instruction.chunk.at(iteration), 0, 1, 0};
    }
    if (now.rank != Index()) now.rank = {instruction.rank.at(iteration), 0, 1, 0};
    if (now.moves) now.into = {instruction.into.at(iteration), 0, 1, 0};
    return text_of(now);
}

std::string write_text(const Schedule& schedule) {
    std::string text = fmt::format("schedule {} {} rank {} of {}", schedule.algorithm, name_of(schedule.collective),
                                   schedule.rank, schedule.ranks);
    if (schedule.root >= 0) text += fmt::format(" root {}", schedule.root);
    text += fmt::format(" channels {} chunks {}", schedule.channels, schedule.chunks);
    if (schedule.tiles != 1) text += fmt::format(" tiles {}", schedule.tiles);
    if (schedule.span != 1) text += fmt::format(" span {}", schedule.span);
    if (schedule.fifo_depth != 0) text += fmt::format(" fifo {}", schedule.fifo_depth);
    if (schedule.scratch != 0) text += fmt::format(" scratch {}", schedule.scratch);
    if (schedule.wide != 1) text += fmt::format(" wide {}", schedule.wide);
    const bool bounded = schedule.most_bytes != INT64_MAX;
    if (schedule.least_bytes != 0 || bounded) text += fmt::format(" bytes {}", schedule.least_bytes);
    if (bounded) text += fmt::format(" to {}", schedule.most_bytes);
    if (!schedule.shared_ranks.empty()) text += " board";
    if (!shared_by_all(schedule))
        for (const int32_t rank : schedule.shared_ranks) text += fmt::format(" {}", rank);
    text += '\n';
    for (const Block& block : schedule.blocks) {
        text += fmt::format("block channel {}", block.channel);
        if (block.source >= 0) text += fmt::format(" source {}", block.source);
        if (block.target >= 0) text += fmt::format(" target {}", block.target);
        text += '\n';
        int step = 0;
        for (const Instruction& instruction : block.instructions)
            text += fmt::format("  {} {}\n", step++, text_of(instruction));
    }
    return text;
}

std::string write_text(std::span<const Schedule> schedules) {
    std::string text;
    for (const Schedule& schedule : schedules) text += (text.empty() ? "" : "\n") + write_text(schedule);
    return text;
}

}  // namespace weft::internal
