#include "src/schedule/msccl.hpp"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

#include "src/schedule/checker.hpp"
#include "src/schedule/msccl_flow.hpp"
#include "src/schedule/text.hpp"
#include "src/schedule/validate.hpp"

namespace weft {

namespace msccl {

namespace {

// Two, so that a tile is on its way while the one before is still looked at.
constexpr int32_t fifo_depth_least = 2;

struct Named {
    const char* name;
    Collective collective;
};
constexpr Named collectives[] = {{"allreduce", Collective::all_reduce},
                                 {"allgather", Collective::all_gather},
                                 {"reduce_scatter", Collective::reduce_scatter},
                                 {"reducescatter", Collective::reduce_scatter},
                                 {"alltoall", Collective::all_to_all},
                                 {"broadcast", Collective::broadcast},
                                 {"reduce", Collective::reduce},
                                 {"gather", Collective::gather},
                                 {"scatter", Collective::scatter}};

// The one gpu that no message goes to, or comes from: a file need not name its root.
std::optional<int> sole_end(const File& file, char receives_or_sends) {
    std::optional<int> root;
    for (const Gpu& gpu : file.gpus) {
        bool used = false;
        for (const ThreadBlock& block : gpu.blocks)
            for (const Step& step : block.steps) used |= strchr(uses_of(step.opcode), receives_or_sends) != nullptr;
        if (used) continue;
        if (root) return {};
        root = gpu.id;
    }
    return root;
}

Status find_shape(const File& file, Shape& shape) {
    // Files of the first days say nothing: there was one collective.
    const std::string_view name = file.collective.empty() ? std::string_view("allreduce") : file.collective;
    const auto row =
        std::find_if(std::begin(collectives), std::end(collectives), [&](const Named& it) { return name == it.name; });
    if (row == std::end(collectives)) {
        std::string list;
        for (const Named& it : collectives) list += fmt::format("{}{}", list.empty() ? "" : ", ", it.name);
        std::string found;
        for (const char letter : name.substr(0, 40)) found += std::isprint(uint8_t(letter)) ? letter : '?';
        return fail_at(file.mark, "coll is `{}`; there are {}", found, list);
    }
    shape = {row->collective, file.ranks, file.chunks, -1};
    const CollectiveFacts facts = facts_of(shape.collective);
    if (shape.chunks % shape.parts() != 0)
        return fail_at(file.mark, "nchunksperloop is {}; {} on {} gpus takes a multiple of {}", shape.chunks, name,
                       shape.ranks, shape.ranks);
    if (!facts.rooted) return ok();
    const bool gives = facts.output_of_others != Held::nothing;  // the root does
    const auto root = file.root >= 0 ? std::optional<int>(file.root) : sole_end(file, gives ? 's' : 't');
    if (!root)
        return fail_at(file.mark, "{} has a root, and no or several gpus {} nothing: name it, as in root=\"0\"", name,
                       gives ? "receive" : "send");
    shape.root = *root;
    return ok();
}

std::string letters_of(const std::string& name) {
    std::string result;
    for (const char letter : name) result += std::isalnum(uint8_t(letter)) ? letter : '_';
    if (result.empty() || !std::isalpha(uint8_t(result[0]))) result = "msccl_" + result;
    return result.substr(0, 64);
}

// Whether the second chunk's move can follow the first's in one instruction.
bool continues(const Move& first, const Move& second) {
    const bool plain = first.source.cell < 0 && first.target.cell < 0 && first.lifted == Where() && first.into < 0 &&
                       second.lifted == Where() && second.into < 0;
    return plain && second.chunk == first.chunk + 1 && second.source == first.source && second.target == first.target &&
           second.left == first.left && second.finish == first.finish;
}

// Steps whose messages are one instruction each. Both ends of a message, and so all steps that a chain of messages
// joins, are split alike, chunk by chunk, if one of them must be.
class Wholes {
  public:
    Wholes(const File& file, const std::vector<RankFlow>& flow) {
        for (const Gpu& gpu : file.gpus) {
            auto& first = first_.emplace_back();
            for (const ThreadBlock& block : gpu.blocks) {
                first.push_back(int(group_.size()));
                group_.resize(group_.size() + block.steps.size());
            }
        }
        std::iota(group_.begin(), group_.end(), 0);
        std::vector<bool> split(group_.size());
        for (const Gpu& gpu : file.gpus)
            for (size_t b = 0; b < gpu.blocks.size(); ++b) {
                const BlockFlow& block = flow[size_t(gpu.id)].blocks[b];
                size_t move = 0;
                for (size_t s = 0; s < gpu.blocks[b].steps.size(); ++s) {
                    const Step& step = gpu.blocks[b].steps[s];
                    const int here = number({gpu.id, int32_t(b), int32_t(s)});
                    const StepPlace& sender = block.senders[s];
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
    bool at(const StepPlace& step) { return !split_[size_t(find(number(step)))]; }

  private:
    int number(const StepPlace& at) const { return first_[size_t(at.rank)][size_t(at.block)] + at.step; }
    int find(int step) {
        while (group_[size_t(step)] != step) step = group_[size_t(step)] = group_[size_t(group_[size_t(step)])];
        return step;
    }
    std::vector<std::vector<int>> first_;  // step of all, by rank and block
    std::vector<int> group_;
    std::vector<bool> split_;
};

// One rank's schedule. Behind the file's blocks stand, where they are needed: one that copies what the file leaves
// where it is, one that saves the input, and the gate. That keeps tiles apart, for they share the scratch: it follows
// whatever a block does there in a tile, and every block waits there for the gate of the tile before.
class Emitter {
  public:
    Emitter(const File& file, const Shape& shape, const RankFlow& flow, Wholes& wholes, int rank)
        : gpu_(file.gpus[size_t(rank)]), flow_(flow), wholes_(wholes), reduces_(facts_of(shape.collective).reduces) {
        schedule_.algorithm = letters_of(file.name);
        schedule_.collective = shape.collective;
        schedule_.rank = rank;
        schedule_.ranks = shape.ranks;
        schedule_.root = shape.root;
        schedule_.chunks = shape.chunks;
    }

    Schedule emit() {
        number_cells();
        int blocks = int(gpu_.blocks.size()), touching = 0;
        if (!flow_.kept.empty()) ++blocks;
        if (!flow_.saved.empty()) saving_ = blocks++;
        for (const BlockFlow& block : flow_.blocks)
            touching += std::any_of(block.moves.begin(), block.moves.end(), in_scratch);
        if (saving_ >= 0) ++touching;
        if (touching > 1) gate_ = {blocks++, touching - 1, 1};
        for (size_t b = 0; b < gpu_.blocks.size(); ++b) emit_block(int(b));
        if (!flow_.kept.empty()) emit_copies(flow_.kept, false);
        if (saving_ >= 0) emit_copies(flow_.saved, true);
        if (gate_.block >= 0) {
            schedule_.blocks.emplace_back();
            for (const Dependency& end : scratch_ends_) append(nop(end));
        }
        // Where a step ends is known when its block is written.
        for (const auto& [block, step] : dependent_) {
            Dependency& after = schedule_.blocks[size_t(block)].instructions[size_t(step)].after;
            after.step = ends_[size_t(after.block)][size_t(after.step)];
        }
        for (size_t b = 0; saving_ >= 0 && b < gpu_.blocks.size(); ++b)
            if (auto& all = schedule_.blocks[b].instructions; !all.empty())
                all[0].after = {saving_, int32_t(schedule_.blocks[size_t(saving_)].instructions.size()) - 1, 0};
        return std::move(schedule_);
    }

  private:
    static bool in_scratch(const Move& move) {
        return move.source.cell >= 0 || move.target.cell >= 0 || move.lifted.cell >= 0;
    }

    // Those in use, in their order.
    void number_cells() {
        for (const BlockFlow& block : flow_.blocks)
            for (const Move& move : block.moves)
                for (const Where& where : {move.source, move.target, move.lifted})
                    if (where.cell >= 0) cells_[where.cell] = 0;
        for (const int32_t chunk : flow_.saved) cells_[saved_cell(chunk)] = 0;
        for (auto& [key, number] : cells_) number = schedule_.scratch++;
    }
    int32_t cell(const Where& where) const { return where.cell < 0 ? -1 : cells_.at(where.cell); }

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
        if (saving_ >= 0 && !from.steps.empty()) append(nop({}));  // emit() says after what
        bool gated = false;
        Dependency last_in_scratch;
        size_t move = 0;
        std::vector<int32_t> ends;
        for (size_t s = 0; s < from.steps.size(); ++s) {
            const Step& step = from.steps[s];
            const int count = step.opcode == Opcode::nop ? 0 : step.count;
            const auto first = flow.moves.begin() + ptrdiff_t(move), end = first + count;
            move += size_t(count);
            const bool touches = std::any_of(first, end, in_scratch);
            if (touches && !gated && gate_.block >= 0) append(nop(gate_));
            gated |= touches;
            Dependency after;
            if (step.after_block >= 0) after = {step.after_block, step.after_step, 0};
            const bool connected = kind_of(step.opcode) == OpcodeKind::connection,
                       whole = !connected || wholes_.at({gpu_.id, b, int32_t(s)});
            const auto emit = [&](Instruction it) {
                it.after = std::exchange(after, {});
                const Dependency place = append(it);
                if (it.after.block >= 0) dependent_.emplace_back(place.block, place.step);
                return place;
            };
            Dependency last;
            if (count == 0) last = emit(nop({}));
            for (auto it = first; it != end;) {
                auto behind = it + 1;
                while (whole && behind != end && continues(behind[-1], *behind)) ++behind;
                if (it->lifted != Where()) {
                    Move lift = *it;
                    lift.source = it->lifted;
                    lift.left = lift.finish = false;
                    emit(instruction(Opcode::copy, lift, 1));
                }
                last = emit(instruction(step.opcode, *it, int(behind - it)));
                if (connected) schedule_.span = std::max(schedule_.span, int(behind - it));
                it = behind;
            }
            if (touches) last_in_scratch = last;
            ends.push_back(last.step);
        }
        if (last_in_scratch.block >= 0) scratch_ends_.push_back(last_in_scratch);
        ends_.push_back(std::move(ends));
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
            move.target = save ? Where{Buffer::scratch, saved_cell(chunks[i])} : Where{Buffer::output, -1};
            move.finish = !save && reduces_;
            size_t behind = i + 1;
            while (!save && behind < chunks.size() && chunks[behind] == chunks[behind - 1] + 1) ++behind;
            last = append(instruction(Opcode::copy, move, int(behind - i)));
            i = behind;
        }
        if (save) scratch_ends_.push_back(last);
    }

    const Gpu& gpu_;
    const RankFlow& flow_;
    Wholes& wholes_;
    const bool reduces_;
    Schedule schedule_;
    std::map<int64_t, int32_t> cells_;
    int saving_ = -1;                                     // block
    Dependency gate_;                                     // its end, a tile before
    std::vector<Dependency> scratch_ends_;                // the last step of each block that works there
    std::vector<std::pair<int32_t, int32_t>> dependent_;  // blocks and steps whose `after` is the file's
    std::vector<std::vector<int32_t>> ends_;              // by block and the file's step: its last instruction
};

// The most messages of any connection, in one tile.
int32_t most_messages(const std::vector<Schedule>& schedules) {
    int32_t most = 0;
    for (const Schedule& schedule : schedules)
        for (const Block& block : schedule.blocks) {
            int32_t messages = 0;
            for (const Instruction& it : block.instructions) messages += strchr(uses_of(it.opcode), 't') != nullptr;
            most = std::max(most, messages);
        }
    return most;
}

// All ranks', with slots for a whole tile: no sender ever waits.
Result<std::vector<Schedule>> translate(const File& file, const Shape& shape, bool save) {
    auto flow = follow(file, shape, save);
    if (!flow) return flow.take_status();
    Wholes wholes(file, *flow);
    std::vector<Schedule> schedules;
    for (int rank = 0; rank < shape.ranks; ++rank)
        schedules.push_back(Emitter(file, shape, (*flow)[size_t(rank)], wholes, rank).emit());
    Schedule most;
    most.fifo_depth = most_messages(schedules);
    if (most.fifo_depth > 0) most.fifo_depth = std::clamp(most.fifo_depth, fifo_depth_least, fifo_depth_most);
    for (const Schedule& schedule : schedules) {
        most.channels = std::max(most.channels, schedule.channels);
        most.span = std::max(most.span, schedule.span);
    }
    for (Schedule& schedule : schedules) {
        schedule.channels = most.channels;
        schedule.span = most.span;
        schedule.fifo_depth = most.fifo_depth;
        if (const auto found = find_objection(schedule))
            return fail_at(file.gpus[size_t(schedule.rank)].mark, "gpu {}: {}", schedule.rank, found->sentence);
    }
    return schedules;
}

// One tile, out of place or in place; what check_set does is more, and for who uses the file.
bool proved(const std::vector<Schedule>& schedules, bool in_place, int fifo_depth = 0) {
    CheckedOperation operation;
    operation.schedule = [&](int rank) { return schedules[size_t(rank)]; };
    operation.in_place.assign(schedules.size(), in_place);
    return check(int(schedules.size()), {&operation, 1}, {.fifo_depth = fifo_depth}).ok();
}

}  // namespace

}  // namespace msccl

Result<MscclProgram> read_msccl(std::string_view xml) {
    using namespace msccl;
    const auto file = parse(xml);
    if (!file) return {Status(file.status().code(), file.status().sentence())};
    Shape shape;
    WEFT_TRY(find_shape(*file, shape));
    auto schedules = translate(*file, shape, false);
    if (!schedules) return schedules.take_status();
    const bool can_be_in_place = !facts_of(shape.collective).transposes;
    if (can_be_in_place && !file->in_place && proved(*schedules, false) && !proved(*schedules, true)) {
        // It reads its input where in place the output is by then.
        auto saving = translate(*file, shape, true);
        if (saving && proved(*saving, true)) schedules = std::move(saving);
    }
    if (proved(*schedules, false)) {
        const int most = (*schedules)[0].fifo_depth;
        int depth = std::min(fifo_depth_least, most);
        while (depth < most && !proved(*schedules, false, depth)) depth = std::min(most, 2 * depth);
        for (Schedule& schedule : *schedules) schedule.fifo_depth = depth;
    }
    return MscclProgram{letters_of(file->name),  shape.collective,        shape.root,
                        size_t(file->min_bytes), size_t(file->max_bytes), std::move(*schedules)};
}

Result<std::vector<Schedule>> read_schedules(std::string_view text) {
    const size_t first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
    if (first == text.npos || text[first] != '<') return read_texts(text);
    auto program = read_msccl(text);
    if (!program) return program.take_status();
    for (Schedule& schedule : program->schedules) {
        schedule.least_bytes = int64_t(std::min<uint64_t>(program->min_bytes, INT64_MAX));
        schedule.most_bytes = int64_t(std::min<uint64_t>(program->max_bytes, INT64_MAX));
    }
    return std::move(program->schedules);
}

}  // namespace weft
