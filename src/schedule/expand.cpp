#include "src/schedule/expand.hpp"

#include <cassert>
#include <map>

#include "src/schedule/builder.hpp"

namespace weft::internal {

namespace {

constexpr int entry_phase = 0, done_phase = 1;

// The pieces of a two-shot on one tile, as one rank runs them. Also of a one-shot whose ranks stage the whole, and
// which continues as a two-shot because it uses some exported buffers.
class TwoShot {
  public:
    TwoShot(BlockBuilder& block, const Schedule& schedule, const Instruction& fused, const DirectMode& mode)
        : block_(block),
          fused_(fused),
          rank_(schedule.rank),
          ranks_(schedule.ranks),
          staged_(fused.opcode == Opcode::one_shot ? ranks_ : ranks_ - 1),
          mode_(mode) {}

    // Ranks that read this rank's input in place need no copy of it.
    void stage(int tile) {
        if (!mode_.reads(rank_)) block_.loop(staged_).copy(others()).from(fused_.source).to(Buffer::slot).tile(tile);
    }
    void reduce_own(int tile) {
        const Buffer source = mode_.readable.empty() ? Buffer::slot : Buffer::either;
        finished(block_.reduce({rank_}).from(source).to(fused_.targets | Buffer::slot)).tile(tile);
    }
    void reduce_direct() { finished(block_.reduce({rank_}).from(Buffer::inputs).to(Buffer::outputs)); }
    void copy_out(int tile) {
        block_.loop(ranks_ - 1).copy(others()).from(Buffer::slot).of(others()).to(fused_.targets).tile(tile);
    }
    void post(int phase, int tile) { block_.post(phase).tile(tile); }
    void wait(int phase, int tile) { block_.wait(phase).tile(tile); }

  private:
    // Rank q owns chunk q, so one index serves for both. Each rank begins after itself, so that ranks read different
    // slots at the same time.
    Index others() const { return Index{0, rank_ + 1, ranks_}.then(1); }
    StepBuilder finished(StepBuilder step) const { return fused_.finish ? step.finish() : step; }

    BlockBuilder& block_;
    const Instruction& fused_;
    int rank_;
    int ranks_;
    int staged_;  // chunks: those of other ranks, then perhaps the own one
    const DirectMode& mode_;
};

void expand_one_shot(BlockBuilder& block, const Instruction& fused) {
    block.copy(fused.chunk).from(fused.source).to(Buffer::slot);
    block.post(entry_phase);
    block.wait(entry_phase);
    StepBuilder step = block.reduce(fused.chunk).from(Buffer::slot).to(fused.targets);
    if (fused.finish) step.finish();
}

void expand_two_shot(TwoShot two_shot, bool direct) {
    if (!direct) two_shot.stage(0);
    two_shot.post(entry_phase, 0);
    two_shot.wait(entry_phase, 0);
    if (direct)
        two_shot.reduce_direct();
    else
        two_shot.reduce_own(0);
    two_shot.post(done_phase, 0);
    two_shot.wait(done_phase, 0);
    if (!direct) two_shot.copy_out(0);
}

}  // namespace

Schedule expand(const Schedule& schedule, const DirectMode& mode) {
    const bool shares = is_one_shot(schedule) && schedule.chunks == 1 && !mode.readable.empty();
    Builder builder = shares ? Builder::in_shares(schedule) : Builder::like(schedule);
    // The new position of each step's last instruction, for dependencies on it.
    std::map<std::pair<int, int>, int> moved;
    for (int b = 0; b < int(schedule.blocks.size()); ++b) {
        const Block& from = schedule.blocks[b];
        BlockBuilder block = builder.block({from.channel, from.source, from.target});
        for (int s = 0; s < int(from.instructions.size()); ++s) {
            const Instruction& it = from.instructions[s];
            const int first = block.size();
            if (it.opcode == Opcode::one_shot && !shares)
                expand_one_shot(block, it);
            else if (kind_of(it.opcode) == OpcodeKind::fused)
                expand_two_shot({block, schedule, it, mode}, mode.direct(schedule.ranks));
            else
                block.append(it);
            if (kind_of(it.opcode) == OpcodeKind::fused) block.step(first).after(it.after);
            moved[{b, s}] = block.size() - 1;
        }
    }
    Schedule expanded = builder.finish();
    for (Block& block : expanded.blocks)
        for (Instruction& it : block.instructions)
            if (it.after != Dependency()) it.after.step = moved[{it.after.block, it.after.step}];
    return expanded;
}

Schedule expand_pipelined(const Schedule& schedule, const DirectMode& mode, int tiles) {
    assert(schedule.blocks.size() == 1 && schedule.blocks[0].instructions.size() == 1);
    const Instruction& fused = schedule.blocks[0].instructions[0];
    assert(fused.opcode == Opcode::two_shot && tiles >= 1);
    if (mode.direct(schedule.ranks)) return expand(schedule, mode);
    Builder builder = Builder::like(schedule, tiles);
    BlockBuilder block = builder.block({});
    TwoShot two_shot(block, schedule, fused, mode);
    two_shot.stage(0);
    two_shot.post(entry_phase, 0);
    for (int round = 0; round < tiles; ++round) {
        two_shot.wait(entry_phase, round);
        if (round > 0) two_shot.wait(done_phase, round - 1);
        if (round + 1 < tiles) two_shot.stage(round + 1);
        two_shot.reduce_own(round);
        if (round > 0) two_shot.copy_out(round - 1);
        if (round + 1 < tiles) two_shot.post(entry_phase, round + 1);
        two_shot.post(done_phase, round);
    }
    two_shot.wait(done_phase, tiles - 1);
    two_shot.copy_out(tiles - 1);
    return builder.finish();
}

}  // namespace weft::internal
