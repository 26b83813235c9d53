#include "src/schedule/builder.hpp"

#include <cassert>
#include <utility>

namespace weft::internal {

Builder::Builder(const char* algorithm, Collective collective, const Layout& layout, Shape shape) {
    schedule_.algorithm = algorithm;
    schedule_.collective = collective;
    schedule_.rank = layout.rank;
    schedule_.ranks = layout.ranks;
    schedule_.root = shape.root;
    schedule_.channels = shape.channels;
    schedule_.chunks = shape.chunks;
    schedule_.tiles = shape.tiles;
    schedule_.fifo_depth = shape.fifo_depth;
    schedule_.span = shape.span;
    schedule_.shared_ranks = std::move(shape.shared_ranks);
    schedule_.scratch = shape.scratch;
    schedule_.wide = shape.wide;
}

Builder Builder::like(const Schedule& schedule) {
    Builder builder;
    builder.schedule_ = schedule;
    builder.schedule_.blocks.clear();
    return builder;
}
Builder Builder::in_shares(const Schedule& schedule) {
    Builder builder = like(schedule);
    builder.schedule_.chunks = schedule.ranks;
    return builder;
}
Builder Builder::like(const Schedule& schedule, int tiles) {
    Builder builder = like(schedule);
    builder.schedule_.tiles = tiles;
    return builder;
}

BlockBuilder Builder::block(Ends ends) {
    schedule_.blocks.push_back({ends.channel, ends.source, ends.target, {}});
    return {*this, int(schedule_.blocks.size()) - 1};
}

// Gives each place one form. A fixed operand is a plain number, unless its span wraps around. A moving operand starts
// inside its modulus.
static Index normalised(Index index, int repeat, int count = 1) {
    const int first = index.at(0);
    const bool turns = count > 1 && index.modulus > 1 && first + count > index.base + index.modulus;
    if (repeat == 1 || index.step == 0)
        return turns ? Index{index.base, first - index.base, index.modulus, 0} : Index{first, 0, 1, 0};
    return {index.base, index.at(0) - index.base, index.modulus, index.step};
}

BlockBuilder& BlockBuilder::loop(int repeat) {
    assert(repeat >= 0);
    repeat_ = repeat;
    return *this;
}

BlockBuilder& BlockBuilder::span(int count) {
    assert(count >= 0);
    count_ = count;
    return *this;
}

StepBuilder BlockBuilder::append(const Instruction& instruction) {
    auto& instructions = builder_->schedule_.blocks[block_].instructions;
    instructions.push_back(instruction);
    return {*builder_, block_, int(instructions.size()) - 1};
}

int BlockBuilder::size() const { return int(builder_->schedule_.blocks[block_].instructions.size()); }

StepBuilder BlockBuilder::emit(Opcode opcode, Chunk chunk) {
    const int repeat = std::exchange(repeat_, 1), count = std::exchange(count_, 1);
    if (repeat == 0 || count == 0) return {*builder_, block_, -1};
    Instruction instruction;
    instruction.opcode = opcode;
    instruction.repeat = repeat;
    instruction.count = count;
    instruction.chunk = normalised(chunk, repeat, count);
    if (reads_source(opcode)) instruction.source = Buffer::input;
    if (writes_targets(opcode)) instruction.targets = Buffer::output;
    return append(instruction);
}

StepBuilder BlockBuilder::send(Chunk chunk) { return emit(Opcode::send, chunk); }
StepBuilder BlockBuilder::recv(Chunk chunk) { return emit(Opcode::recv, chunk); }
StepBuilder BlockBuilder::recv_copy_send(Chunk chunk) { return emit(Opcode::recv_copy_send, chunk); }
StepBuilder BlockBuilder::recv_reduce_send(Chunk chunk) { return emit(Opcode::recv_reduce_send, chunk); }
StepBuilder BlockBuilder::recv_reduce_copy(Chunk chunk) { return emit(Opcode::recv_reduce_copy, chunk); }
StepBuilder BlockBuilder::recv_reduce_copy_send(Chunk chunk) { return emit(Opcode::recv_reduce_copy_send, chunk); }
StepBuilder BlockBuilder::copy(Chunk chunk) { return emit(Opcode::copy, chunk); }
StepBuilder BlockBuilder::reduce(Chunk chunk) { return emit(Opcode::reduce, chunk).from(Buffer::slot); }
StepBuilder BlockBuilder::one_shot(Chunk chunk) { return emit(Opcode::one_shot, chunk); }
StepBuilder BlockBuilder::two_shot(Chunk chunk) { return emit(Opcode::two_shot, chunk); }

StepBuilder BlockBuilder::nop() {
    Instruction instruction;
    instruction.opcode = Opcode::nop;
    return append(instruction);
}
StepBuilder BlockBuilder::post(int phase) {
    Instruction instruction;
    instruction.opcode = Opcode::post;
    instruction.phase = uint8_t(phase);
    return append(instruction);
}
StepBuilder BlockBuilder::wait(int phase) {
    Instruction instruction;
    instruction.opcode = Opcode::wait;
    instruction.phase = uint8_t(phase);
    return append(instruction);
}

Instruction* StepBuilder::instruction() {
    return index_ < 0 ? nullptr : &builder_->schedule_.blocks[block_].instructions[index_];
}
StepBuilder& StepBuilder::finish() {
    if (auto* it = instruction()) it->finish = true;
    return *this;
}
StepBuilder& StepBuilder::left() {
    if (auto* it = instruction()) it->left = true;
    return *this;
}
StepBuilder& StepBuilder::from(Buffer source) {
    if (auto* it = instruction()) it->source = source;
    return *this;
}
StepBuilder& StepBuilder::of(Index rank) {
    if (auto* it = instruction()) it->rank = normalised(rank, it->repeat);
    return *this;
}
StepBuilder& StepBuilder::into(Chunk chunk) {
    if (auto* it = instruction()) {
        it->moves = true;
        it->into = normalised(chunk, it->repeat);
    }
    return *this;
}
StepBuilder& StepBuilder::to(unsigned targets) {
    if (auto* it = instruction()) it->targets = uint8_t(targets);
    return *this;
}
StepBuilder& StepBuilder::to_cell(int cell) {
    if (auto* it = instruction()) {
        it->targets = Buffer::scratch;
        it->target_cell = cell;
    }
    return *this;
}
StepBuilder& StepBuilder::tile(int tile) {
    if (auto* it = instruction()) it->tile = tile;
    return *this;
}
StepBuilder& StepBuilder::after(const StepBuilder& step) { return step.index_ < 0 ? *this : after(step.dependency()); }
StepBuilder& StepBuilder::after(const StepBuilder& step, int runs_ago) {
    return step.index_ < 0 ? *this : after(Dependency{step.block_, step.index_, runs_ago});
}
StepBuilder& StepBuilder::after(Dependency dependency) {
    if (auto* it = instruction()) it->after = dependency;
    return *this;
}

}  // namespace weft::internal
