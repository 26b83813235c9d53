// builder.hpp: how algorithms/ says what a schedule does: a line of C++ an instruction, each with the operands it
// usually has (source: input, targets: output) and modifiers for the rest. References to blocks and steps are indices
// into the builder, so they stay good as it grows.
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

// A chunk that may move: Chunk{base, start, modulus}, and .then(step) for the distance from one iteration to the next.
using Chunk = Index;

class Builder;

// An instruction just emitted. A loop of no iterations emits nothing, and modifiers of that nothing do nothing.
class StepBuilder {
  public:
    StepBuilder& finish();
    StepBuilder& left();  // source[chunk] is the left operand of the sum
    StepBuilder& from(Buffer source);
    StepBuilder& of(Index rank);        // whose slot
    StepBuilder& into(Chunk chunk);     // of the targets, where it is another than the source's
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
    // The next instruction runs `repeat` times, its operands moving; with 0 it is not emitted at all.
    BlockBuilder& loop(int repeat);
    // The next instruction works on `count` chunks in a row, the first of them the one it is given; at the end of that
    // one's modulus they go on at its base. With 0 it is not emitted.
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
    // An instruction as it stands.
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
        std::vector<int32_t> shared_ranks = {};  // its ranks
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
    // Another schedule's header, with no block yet.
    static Builder like(const Schedule& schedule);
    static Builder like(const Schedule& schedule, int tiles);
    static Builder in_shares(const Schedule& schedule);  // with a chunk for each rank
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
