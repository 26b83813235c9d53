// builder.hpp: builds a schedule with one line of C++ for each instruction. Each call takes the usual operands (source:
// input, targets: output); modifiers set the others. References to blocks and steps are indices, so they stay valid as
// the builder grows.
//
//     Builder schedule("ring", Collective::all_reduce, layout, {.channels = 1, .chunks = ranks, .fifo_depth = 2});
//     BlockBuilder block = schedule.block({.channel = 0, .source = ring.previous, .target = ring.next});
//     block.send(chunk(-1));
//     block.loop(ranks - 2).recv_reduce_send(chunk(-2).then(-1));
//     block.recv_reduce_copy_send(chunk(0)).finish();
#pragma once
#include <utility>

#include "src/schedule/layout.hpp"
#include "src/schedule/schedule.hpp"

namespace weft::internal {

// A chunk that may move: Chunk{base, start, modulus}. `.then(step)` sets the distance from one iteration to the next.
using Chunk = Index;

class Builder;

// The instruction that was just emitted. A loop without iterations emits nothing; then modifiers have no effect.
class StepBuilder {
  public:
    StepBuilder& finish();
    StepBuilder& left();  // source[chunk] is the left operand of the sum
    StepBuilder& from(Buffer source);
    StepBuilder& of(Index rank);        // whose slot
    StepBuilder& into(Chunk chunk);     // of the targets, if it differs from the source's chunk
    StepBuilder& to(unsigned targets);  // bits of Buffer
    StepBuilder& to_cell(int cell);     // of scratch, the only target
    StepBuilder& tile(int tile);
    StepBuilder& after(const StepBuilder& step);
    StepBuilder& after(const StepBuilder& step, int runs_ago);
    StepBuilder& after(Dependency dependency);
    Dependency dependency() const { return {block_, index_}; }

  private:
    friend class BlockBuilder;
    StepBuilder(Builder& builder, int block, int index) : builder_(&builder), block_(block), index_(index) {}
    Instruction* instruction();
    Builder* builder_;
    int block_;
    int index_;  // -1: nothing was emitted
};

class BlockBuilder {
  public:
    // The next instruction runs `repeat` times with moving operands. With 0 it is not emitted.
    BlockBuilder& loop(int repeat);
    // The next instruction works on `count` consecutive chunks, beginning with its operand. After the modulus they
    // continue at the base. With 0 it is not emitted.
    BlockBuilder& span(int count);

    StepBuilder send(Chunk chunk);
    StepBuilder recv(Chunk chunk);
    StepBuilder recv_copy_send(Chunk chunk);
    StepBuilder recv_reduce_send(Chunk chunk);
    StepBuilder recv_reduce_copy(Chunk chunk);
    StepBuilder recv_reduce_copy_send(Chunk chunk);
    StepBuilder copy(Chunk chunk);
    StepBuilder reduce(Chunk chunk);
    StepBuilder nop();
    StepBuilder post(int phase);
    StepBuilder wait(int phase);
    StepBuilder one_shot(Chunk chunk);
    StepBuilder two_shot(Chunk chunk);
    // Appends an instruction unchanged.
    StepBuilder append(const Instruction& instruction);

    int size() const;  // instructions so far
    StepBuilder step(int index) { return {*builder_, block_, index}; }

  private:
    friend class Builder;
    BlockBuilder(Builder& builder, int block) : builder_(&builder), block_(block) {}
    StepBuilder emit(Opcode opcode, Chunk chunk);
    Builder* builder_;
    int block_;
    int repeat_ = 1;
    int count_ = 1;
};

class Builder {
  public:
    struct Shape {
        int channels = 1;
        int chunks = 1;
        int fifo_depth = 0;
        int span = 1;
        std::vector<int32_t> shared_ranks = {};  // the ranks of the flag block
        int tiles = 1;
        int root = -1;
        int scratch = 0;  // cells
        int wide = 1;
    };
    struct Ends {
        int channel = 0;
        int source = -1;
        int target = -1;
    };
    Builder(const char* algorithm, Collective collective, const Layout& layout, Shape shape);
    // The header of another schedule, without blocks.
    static Builder like(const Schedule& schedule);
    static Builder like(const Schedule& schedule, int tiles);
    static Builder in_shares(const Schedule& schedule);  // the same with one chunk for each rank
    BlockBuilder block(Ends ends);
    int blocks() const { return int(schedule_.blocks.size()); }  // so far
    bool receives(int block) const { return schedule_.blocks[size_t(block)].source >= 0; }
    Schedule finish() { return std::move(schedule_); }

  private:
    friend class BlockBuilder;
    friend class StepBuilder;
    Builder() = default;
    Schedule schedule_;
};

}  // namespace weft::internal
