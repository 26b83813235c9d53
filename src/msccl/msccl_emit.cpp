#include "src/msccl/msccl_emit.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "src/schedule/validate.hpp"

namespace weft::internal::msccl {

namespace {

// Whether one instruction can do both moves, the second one's chunk after the first one's.
bool continues(const Move& first, const Move& second) {
    const bool plain = first.does == Move::step && second.does == Move::step && first.sum < 0 && second.sum < 0 &&
                       first.source.cell < 0 && first.target.cell < 0 && first.lifted == BufferCell() &&
                       first.into < 0 && second.lifted == BufferCell() && second.into < 0;
    return plain && second.chunk == first.chunk + 1 && second.source == first.source && second.target == first.target &&
           second.left == first.left && second.finish == first.finish;
}

// Steps whose message is one instruction. Both ends of a message are split in the same way, and so are all steps that
// messages join in a chain. If one of them must be split, all are split into chunks.
class WholeMessages {
  public:
    WholeMessages(const File& file, const std::vector<RankFlow>& flow) {
        for (const XmlGpu& gpu : file.gpus) {
            auto& first = first_.emplace_back();
            for (const ThreadBlock& block : gpu.blocks) {
                first.push_back(int(group_.size()));
                group_.resize(group_.size() + block.steps.size());
            }
        }
        std::iota(group_.begin(), group_.end(), 0);
        std::vector<bool> split(group_.size());
        for (const XmlGpu& gpu : file.gpus)
            for (size_t b = 0; b < gpu.blocks.size(); ++b) {
                const BlockFlow& block = flow[size_t(gpu.id)].blocks[b];
                size_t move = 0;
                for (size_t s = 0; s < gpu.blocks[b].steps.size(); ++s) {
                    const Step& step = gpu.blocks[b].steps[s];
                    const int here = number({gpu.id, int32_t(b), int32_t(s)});
                    const StepId& sender = block.senders[s];
                    if (sender.rank >= 0) group_[size_t(find(here))] = find(number(sender));
                    if (kind_of(step.opcode) == OpcodeKind::local) {
                        move += step.opcode == Opcode::nop ? 0 : size_t(step.count);
                        continue;
                    }
                    for (int i = 1; i < step.count; ++i)
                        if (!continues(block.moves[move + size_t(i) - 1], block.moves[move + size_t(i)]))
                            split[size_t(here)] = true;
                    move += size_t(step.count);
                }
            }
        split_.resize(group_.size());
        for (size_t step = 0; step < split.size(); ++step)
            if (split[step]) split_[size_t(find(int(step)))] = true;
    }
    bool at(const StepId& step) { return !split_[size_t(find(number(step)))]; }

  private:
    int number(const StepId& at) const { return first_[size_t(at.rank)][size_t(at.block)] + at.step; }
    int find(int step) {
        while (group_[size_t(step)] != step) step = group_[size_t(step)] = group_[size_t(group_[size_t(step)])];
        return step;
    }
    std::vector<std::vector<int>> first_;  // step of all, by rank and block
    std::vector<int> group_;
    std::vector<bool> split_;
};

// One rank's schedule. Up to three blocks follow those of the file. One copies chunks that the file does not move. One
// saves the input. The last is the gate, which separates tiles because they share the scratch. The gate runs after all
// steps of a tile that use scratch. Each block waits for the gate of the tile before, and then uses the scratch.
class Emitter {
  public:
    Emitter(const File& file, const Shape& shape, const RankFlow& flow, WholeMessages& whole_messages, int rank)
        : gpu_(file.gpus[size_t(rank)]),
          flow_(flow),
          whole_messages_(whole_messages),
          reduces_(facts_of(shape.collective).reduces) {
        schedule_.algorithm = algorithm_name(file);
        schedule_.collective = shape.collective;
        schedule_.rank = rank;
        schedule_.ranks = shape.ranks;
        schedule_.root = shape.root;
        schedule_.chunks = shape.chunks;
    }

    Emitted emit() {
        number_cells();
        int blocks = int(gpu_.blocks.size()), touching = 0;
        if (!flow_.kept.empty()) ++blocks;
        if (!flow_.saved.empty()) saving_ = blocks++;
        for (const BlockFlow& block : flow_.blocks)
            touching +=
                std::any_of(block.moves.begin(), block.moves.end(), [&](const Move& move) { return in_scratch(move); });
        if (saving_ >= 0) ++touching;
        if (touching > 1) gate_ = {blocks++, touching - 1, 1};
        for (size_t b = 0; b < gpu_.blocks.size(); ++b) emit_block(int(b));
        if (!flow_.kept.empty()) emit_copies(flow_.kept, false);
        if (saving_ >= 0) emit_copies(flow_.saved, true);
        if (gate_.block >= 0) {
            schedule_.blocks.emplace_back();
            for (const Dependency& end : scratch_ends_) append(nop(end));
        }
        // The end of a step is known when its block is written.
        for (const auto& [block, step] : dependent_) {
            Dependency& after = schedule_.blocks[size_t(block)].instructions[size_t(step)].after;
            after.step = ends_[size_t(after.block)][size_t(after.step)];
        }
        for (size_t b = 0; saving_ >= 0 && b < gpu_.blocks.size(); ++b)
            if (auto& all = schedule_.blocks[b].instructions; !all.empty())
                all[0].after = {saving_, int32_t(schedule_.blocks[size_t(saving_)].instructions.size()) - 1, 0};
        origins_.resize(schedule_.blocks.size());
        for (size_t b = 0; b < origins_.size(); ++b) origins_[b].resize(schedule_.blocks[b].instructions.size());
        return {std::move(schedule_), std::move(origins_)};
    }

  private:
    template <class Visit>
    void each_place(const Move& move, Visit visit) const {
        for (const BufferCell& where : {move.source, move.target, move.lifted}) visit(where);
        if (move.sum < 0) return;
        const RankOrderedSum& sum = flow_.sums[size_t(move.sum)];
        for (const BufferCell& where : sum.operands) visit(where);
        visit(sum.received);
        if (sum.own > 1) visit(sum.partial);
    }
    bool in_scratch(const Move& move) const {
        bool found = false;
        each_place(move, [&](const BufferCell& where) { found |= where.cell >= 0; });
        return found;
    }

    // Numbers the used cells in their order.
    void number_cells() {
        for (const BlockFlow& block : flow_.blocks)
            for (const Move& move : block.moves)
                each_place(move, [&](const BufferCell& where) {
                    if (where.cell >= 0) cells_[where.cell] = 0;
                });
        for (const int32_t chunk : flow_.saved) cells_[saved_cell(chunk)] = 0;
        for (auto& [key, number] : cells_) number = schedule_.scratch++;
    }
    int32_t cell(const BufferCell& where) const { return where.cell < 0 ? -1 : cells_.at(where.cell); }

    static Instruction nop(const Dependency& after) {
        Instruction it;
        it.opcode = Opcode::nop;
        it.after = after;
        return it;
    }
    Dependency append(const Instruction& instruction) {
        auto& instructions = schedule_.blocks.back().instructions;
        instructions.push_back(instruction);
        return {int32_t(schedule_.blocks.size()) - 1, int32_t(instructions.size()) - 1, 0};
    }

    void emit_block(int b) {
        const ThreadBlock& from = gpu_.blocks[size_t(b)];
        const BlockFlow& flow = flow_.blocks[size_t(b)];
        schedule_.blocks.push_back({from.channel, flow.receives ? from.receive : -1, flow.sends ? from.send : -1, {}});
        schedule_.channels = std::max(schedule_.channels, from.channel + 1);
        if (saving_ >= 0 && !from.steps.empty()) append(nop({}));  // emit() sets its dependency
        bool gated = false;
        Dependency last_in_scratch;
        size_t move = 0;
        std::vector<int32_t> ends;
        for (size_t s = 0; s < from.steps.size(); ++s) {
            const Step& step = from.steps[s];
            const int count = step.opcode == Opcode::nop ? 0 : step.count;
            const auto first = flow.moves.begin() + ptrdiff_t(move), end = first + count;
            move += size_t(count);
            const bool touches = std::any_of(first, end, [&](const Move& each) { return in_scratch(each); });
            if (touches && !gated && gate_.block >= 0) append(nop(gate_));
            origins_.resize(schedule_.blocks.size());
            origins_.back().resize(schedule_.blocks.back().instructions.size());
            gated |= touches;
            Dependency after;
            if (step.after_block >= 0) after = {step.after_block, step.after_step, 0};
            const bool connected = kind_of(step.opcode) == OpcodeKind::connection,
                       whole = !connected || whole_messages_.at({gpu_.id, b, int32_t(s)});
            const auto emit = [&](Instruction it) {
                it.after = std::exchange(after, {});
                const Dependency place = append(it);
                if (it.after.block >= 0) dependent_.emplace_back(place.block, place.step);
                return place;
            };
            Dependency last;
            for (auto it = first; it != end;) {
                auto behind = it + 1;
                while (whole && behind != end && continues(behind[-1], *behind)) ++behind;
                if (it->does == Move::receive) {
                    last = emit(instruction(Opcode::recv, *it, 1));
                } else if (it->sum >= 0) {
                    last = emit_sum(*it, emit);
                } else if (it->does == Move::step) {
                    if (it->lifted != BufferCell()) emit(copy_of(it->lifted, *it));
                    last = emit(instruction(step.opcode, *it, int(behind - it)));
                }
                if (connected) schedule_.span = std::max(schedule_.span, int(behind - it));
                it = behind;
            }
            if (last.block < 0) last = emit(nop({}));
            origins_.back().resize(schedule_.blocks.back().instructions.size(), {from.id, int32_t(s), step.mark.line});
            if (touches) last_in_scratch = last;
            ends.push_back(last.step);
        }
        if (last_in_scratch.block >= 0) scratch_ends_.push_back(last_in_scratch);
        ends_.push_back(std::move(ends));
    }

    // A copy of the step's chunk from `source` to its place.
    Instruction copy_of(const BufferCell& source, Move move) const {
        move.source = source;
        move.left = move.finish = false;
        return instruction(Opcode::copy, move, 1);
    }

    // The operands before the place's own are summed first, and this sum is then the left operand.
    template <class Emit>
    Dependency emit_sum(const Move& move, Emit& emit) const {
        const RankOrderedSum& sum = flow_.sums[size_t(move.sum)];
        Move part;
        part.chunk = move.chunk;
        if (sum.received != BufferCell()) {
            part.target = sum.received;
            emit(instruction(Opcode::recv, part, 1));
        }
        const auto add = [&](const BufferCell& source, const BufferCell& target, bool left, bool finish) {
            part.source = source;
            part.target = target;
            part.left = left;
            part.finish = finish;
            return emit(instruction(Opcode::add, part, 1));
        };
        const auto copy = [&](const BufferCell& source, const BufferCell& target) {
            part.target = target;
            emit(copy_of(source, part));
        };
        BufferCell before = sum.operands[0];
        if (sum.own > 1) {
            copy(before, sum.partial);
            for (size_t i = 1; i < sum.own; ++i) add(sum.operands[i], sum.partial, false, false);
            before = sum.partial;
        }
        if (sum.operands[sum.own] != move.target) copy(sum.operands[sum.own], move.target);
        Dependency last;
        const size_t end = sum.operands.size();
        if (sum.own > 0) last = add(before, move.target, true, move.finish && sum.own + 1 == end);
        for (size_t i = sum.own + 1; i < end; ++i)
            last = add(sum.operands[i], move.target, false, move.finish && i + 1 == end);
        return last;
    }

    Instruction instruction(Opcode opcode, const Move& move, int count) const {
        Instruction it;
        it.opcode = opcode;
        it.source = move.source.buffer;
        it.source_cell = cell(move.source);
        it.targets = move.target.buffer;
        it.target_cell = cell(move.target);
        it.count = count;
        it.chunk = {move.chunk, 0, 1, 0};
        it.moves = move.into >= 0;
        if (it.moves) it.into = {move.into, 0, 1, 0};
        it.left = move.left;
        it.finish = move.finish;
        return it;
    }

    void emit_copies(const std::vector<int32_t>& chunks, bool save) {
        schedule_.blocks.emplace_back();
        if (save && gate_.block >= 0) append(nop(gate_));
        Dependency last;
        for (size_t i = 0; i < chunks.size();) {
            Move move;
            move.chunk = chunks[i];
            move.source.buffer = Buffer::input;
            move.target = save ? BufferCell{Buffer::scratch, saved_cell(chunks[i])} : BufferCell{Buffer::output, -1};
            move.finish = !save && reduces_;
            size_t behind = i + 1;
            while (!save && behind < chunks.size() && chunks[behind] == chunks[behind - 1] + 1) ++behind;
            last = append(instruction(Opcode::copy, move, int(behind - i)));
            i = behind;
        }
        if (save) scratch_ends_.push_back(last);
    }

    const XmlGpu& gpu_;
    const RankFlow& flow_;
    WholeMessages& whole_messages_;
    const bool reduces_;
    Schedule schedule_;
    SourceSteps origins_;
    std::map<int64_t, int32_t> cells_;
    int saving_ = -1;                                     // block
    Dependency gate_;                                     // its end, one tile before
    std::vector<Dependency> scratch_ends_;                // the last step of each block that uses the scratch
    std::vector<std::pair<int32_t, int32_t>> dependent_;  // blocks and steps with a dependency from the file
    std::vector<std::vector<int32_t>> ends_;              // by block and step of the file: its last instruction
};

// The most messages of a connection in one tile.
int32_t most_messages(const std::vector<Emitted>& ranks) {
    int32_t most = 0;
    for (const Emitted& rank : ranks)
        for (const Block& block : rank.schedule.blocks) {
            int32_t messages = 0;
            for (const Instruction& it : block.instructions) messages += sends(it.opcode);
            most = std::max(most, messages);
        }
    return most;
}

}  // namespace

std::string algorithm_name(const File& file) {
    std::string name;
    for (const char letter : file.name) name += is_name_sign(letter) ? letter : '_';
    return name.empty() || !is_name_letter(name[0]) ? "msccl_" + name : name;
}

std::vector<Emitted> emit(const File& file, const Shape& shape, const std::vector<RankFlow>& flow) {
    WholeMessages whole_messages(file, flow);
    std::vector<Emitted> ranks;
    for (int rank = 0; rank < shape.ranks; ++rank)
        ranks.push_back(Emitter(file, shape, flow[size_t(rank)], whole_messages, rank).emit());
    Schedule most;
    most.fifo_depth = most_messages(ranks);
    if (most.fifo_depth > 0) most.fifo_depth = std::clamp(most.fifo_depth, fifo_depth_least, fifo_depth_most);
    for (const Emitted& rank : ranks) {
        most.channels = std::max(most.channels, rank.schedule.channels);
        most.span = std::max(most.span, rank.schedule.span);
    }
    for (Emitted& rank : ranks) {
        rank.schedule.channels = most.channels;
        rank.schedule.span = most.span;
        rank.schedule.fifo_depth = most.fifo_depth;
    }
    return ranks;
}

}  // namespace weft::internal::msccl
