#include "src/schedule/validate.hpp"

#include <cctype>
#include <set>
#include <tuple>
#include <utility>

#include "src/schedule/text.hpp"

namespace weft::internal {

namespace {

using Sentence = std::optional<std::string>;

template <class... Arguments>
Sentence object(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    return fmt::format(format, std::forward<Arguments>(arguments)...);
}

Sentence object_to_number(const char* what, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return {};
    return object("{} is {}; it must lie in {}..{}", what, value, least, most);
}

// Every value of the index, in any iteration, is below `end`.
Sentence object_to_index(const char* what, const Index& index, int end) {
    if (index.modulus < 1) return object("{} moves modulo {}; a modulus is at least 1", what, index.modulus);
    if (index.base >= 0 && int64_t(index.base) + index.modulus <= end) return {};
    return object("{} can be {}; it must lie in 0..{}", what,
                  index.base < 0 ? int64_t(index.base) : int64_t(index.base) + index.modulus - 1, end - 1);
}

// And every chunk of the span.
Sentence object_to_span(const Instruction& it, int chunks) {
    if (it.count < 1) return object("the number of chunks is {}; it is at least 1", it.count);
    if (Sentence found = object_to_index("the chunk", it.chunk, chunks)) return found;
    if (it.chunk.modulus > 1 && it.count > it.chunk.modulus)
        return object("{} chunks go round more than once, modulo {}", it.count, it.chunk.modulus);
    if (it.chunk.modulus == 1 && it.count > chunks - it.chunk.base)
        return object("its chunks go up to {}; they must lie in 0..{}", int64_t(it.chunk.base) + it.count - 1,
                      chunks - 1);
    return {};
}

Sentence object_to_shared_ranks(const Schedule& schedule) {
    int before = -1;
    bool member = schedule.shared_ranks.empty();
    for (const int32_t rank : schedule.shared_ranks) {
        if (rank <= before || rank >= schedule.ranks)
            return object("the ranks of the flag block are not ascending, or one is above {}", schedule.ranks - 1);
        member |= rank == schedule.rank;
        before = rank;
    }
    return member ? Sentence() : object("the flag block belongs to other ranks");
}

Sentence object_to_parts(const Schedule& schedule) {
    if (schedule.chunks % schedule.parts() == 0) return {};
    return object("{} chunks cannot be divided equally among {} parts; the number must be a multiple", schedule.chunks,
                  schedule.parts());
}

Sentence object_to_width(const Schedule& schedule) {
    if (schedule.wide == 1) return {};
    const int most = std::max(1, Schedule::wide_chunks_most / schedule.chunks);
    if (Sentence found = object_to_number("the width", schedule.wide, 1, most)) return found;
    if (schedule.shared_ranks.empty())
        return object("slots of the flag block are wider than a tile, but there is no flag block");
    if (schedule.parts() == 1 || schedule.chunks != schedule.parts())
        return object("slots of the flag block that are wider than a tile hold parts of one chunk each");
    return schedule.scratch == 0 ? Sentence() : object("it is wider than a tile, but its scratch is cells");
}

Sentence object_to_header(const Schedule& schedule) {
    if (schedule.algorithm.empty() || schedule.algorithm.size() > name_letters_most)
        return object("the name of an algorithm has 1 to 256 characters");
    for (char letter : schedule.algorithm)
        if (!is_name_sign(letter))
            return object("the name of the algorithm contains other characters than letters, digits and _");
    if (!is_name_letter(schedule.algorithm[0])) return object("the algorithm's name begins with a letter");
    if (!collective_named(name_of(schedule.collective))) return object("the collective is none that a schedule can do");
    const bool rooted = facts_of(schedule.collective).rooted;
    Sentence found;
    (void)((found = object_to_number("the number of ranks", schedule.ranks, 1, ranks_most)) ||
           (found = object_to_number("the rank", schedule.rank, 0, schedule.ranks - 1)) ||
           (found = rooted ? object_to_number("the root", schedule.root, 0, schedule.ranks - 1)
                           : object_to_number("the root, of which the collective has none,", schedule.root, -1, -1)) ||
           (found = object_to_number("the number of channels", schedule.channels, 1, channels_most)) ||
           (found = object_to_number("the number of chunks", schedule.chunks, 1, chunks_most)) ||
           (found = object_to_parts(schedule)) ||
           (found = object_to_number("the number of tiles", schedule.tiles, 1, tiles_most)) ||
           (found = object_to_width(schedule)) ||
           (found = object_to_number("the largest span", schedule.span, 1, schedule.wide * schedule.chunks)) ||
           (found = object_to_number("the FIFO depth", schedule.fifo_depth, 0, fifo_depth_most)) ||
           (found = object_to_number("the number of cells", schedule.scratch, 0, cells_of_scratch_most)) ||
           (found = object_to_number("the least number of bytes", schedule.least_bytes, 0, INT64_MAX)) ||
           (found = object_to_number("the largest number of bytes", schedule.most_bytes, schedule.least_bytes,
                                     INT64_MAX)) ||
           (found = object_to_shared_ranks(schedule)));
    return found;
}

Sentence object_to_ends(const Schedule& schedule, const Block& block) {
    if (Sentence found = object_to_number("the channel", block.channel, 0, schedule.channels - 1)) return found;
    for (auto [what, end] : {std::pair{"the source", block.source}, std::pair{"the target", block.target}}) {
        if (Sentence found = object_to_number(what, end, -1, schedule.ranks - 1)) return found;
        if (end == schedule.rank) return object("{} is the rank itself", what);
        if (end >= 0 && schedule.fifo_depth < 1)
            return object("it has connections, but the schedule's FIFO depth is 0");
    }
    return {};
}

int allowed_sources(Opcode opcode) {
    if (opcode == Opcode::copy) return input | output | slot | scratch;
    if (opcode == Opcode::reduce) return slot | inputs | either | scratch;
    if (kind_of(opcode) == OpcodeKind::connection) return input | output | slot | scratch;
    return kind_of(opcode) == OpcodeKind::fused ? input : input | output | scratch;
}
int allowed_targets(Opcode opcode) {
    if (opcode == Opcode::reduce) return output | slot | outputs;
    if (opcode == Opcode::add) return output | scratch;
    return kind_of(opcode) == OpcodeKind::fused ? output : output | slot | scratch;
}
// Whether `finish` can complete the result of the instruction: a new value, or one rank's contribution alone.
bool may_finish(Opcode opcode) { return combines(opcode) || opcode == Opcode::copy; }

// Scratch with cells: each operand there names its cell. Otherwise no operand does.
Sentence object_to_cells(const Schedule& schedule, const Instruction& it) {
    bool cells = false;
    // A reduction reads the cells of all other ranks.
    const bool all = it.opcode == Opcode::reduce && it.source == scratch;
    if (all && schedule.scratch != schedule.ranks)
        return object("it sums up scratch, which has {} cells; it takes one for each of the {} ranks", schedule.scratch,
                      schedule.ranks);
    for (auto [what, used, cell] : {std::tuple{"the source's cell", (it.source & scratch) != 0 && !all, it.source_cell},
                                    std::tuple{"the target's cell", (it.targets & scratch) != 0, it.target_cell}}) {
        const bool named = used && schedule.scratch > 0;
        cells |= named;
        if (!named && cell != -1)
            return object("it names a cell of scratch, {}",
                          used ? "of which the schedule's header says none" : "but does not use it");
        if (Sentence found = named ? object_to_number(what, cell, 0, schedule.scratch - 1) : Sentence()) return found;
    }
    if (cells && (it.count != 1 || it.repeat != 1)) return object("it has several chunks; a cell of scratch holds one");
    return {};
}

// The number of chunks at a place that is read or written. Buffers hold the whole.
int chunks_in(const Schedule& schedule, unsigned buffers) {
    const unsigned wide = Buffer::slot | Buffer::scratch;
    return buffers != 0 && (buffers & ~wide) == 0 ? schedule.wide * schedule.chunks : schedule.chunks;
}

Sentence object_to_operands(const Schedule& schedule, const Block& block, const Instruction& it) {
    const bool is_flag = kind_of(it.opcode) == OpcodeKind::flag, fused = kind_of(it.opcode) == OpcodeKind::fused;
    if (receives(it.opcode) && block.source < 0) return object("it receives, but its block has no source");
    if (sends(it.opcode) && block.target < 0) return object("it sends, but its block has no target");
    const int source = it.source, targets = it.targets;
    if (!reads_source(it.opcode) && source != Buffer::none) return object("it has a source, but reads none");
    if (reads_source(it.opcode)) {
        if ((source & (source - 1)) != 0 || (source & allowed_sources(it.opcode)) == 0)
            return object("it cannot read from there");
    }
    if (!writes_targets(it.opcode) && targets != 0) return object("it has targets, but writes none");
    if (writes_targets(it.opcode)) {
        if (targets == 0) return object("it has no target");
        if ((targets & ~allowed_targets(it.opcode)) != 0) return object("it cannot write there");
        if ((targets & output) && (targets & outputs)) return object("its target outputs includes output");
    }
    const bool others_slot = it.opcode == Opcode::copy && it.source == Buffer::slot;
    if (!others_slot && it.rank != Index()) return object("it names a rank, but reads no one rank's slot");
    if (Sentence found = others_slot ? object_to_index("the rank", it.rank, schedule.ranks) : Sentence()) return found;
    if (others_slot && !schedule.shared_ranks.empty() && !shared_by_all(schedule) &&
        (it.rank.modulus != 1 ||
         !std::binary_search(schedule.shared_ranks.begin(), schedule.shared_ranks.end(), it.rank.base)))
        return object(
            "the rank does not share the flag block, or moves data although the flag block is not shared by all ranks");
    if (!moves(it.opcode) && (it.chunk != Index() || it.repeat != 1 || it.count != 1))
        return object("it has a chunk or repeats; {} does neither",
                      is_flag ? "an instruction of the flag block" : "a nop");
    const unsigned at_chunk = it.moves                      ? unsigned(it.source)
                              : it.opcode == Opcode::reduce ? unsigned(Buffer::input)  // its own contribution
                                                            : it.source | it.targets;
    if (Sentence found = object_to_span(it, chunks_in(schedule, at_chunk))) return found;
    if (kind_of(it.opcode) == OpcodeKind::connection && it.count > schedule.span)
        return object("its message holds {} chunks; the schedule's header says at most {}", it.count, schedule.span);
    if (fused && (schedule.blocks.size() != 1 || schedule.blocks[0].instructions.size() != 1))
        return object("it is fused: it is all that a rank does");
    if (fused && it.count != 1) return object("it has {} chunks; it works on one", it.count);
    if (fused && schedule.collective != Collective::all_reduce)
        return object("it is fused, which is for {} only", name_of(Collective::all_reduce));
    if (it.moves ? it.opcode != Opcode::copy || it.count != 1 : it.into != Index())
        return object("it names a chunk for its targets, which a copy of one chunk does only");
    if (it.moves && facts_of(schedule.collective).reduces && schedule.parts() == 1)
        return object("it moves a chunk to another's place, where contributions to each are added up");
    if (Sentence found =
            it.moves ? object_to_index("the targets' chunk", it.into, chunks_in(schedule, it.targets)) : Sentence())
        return found;
    if (Sentence found = object_to_cells(schedule, it)) return found;
    if (it.opcode == Opcode::add && (targets & (targets - 1)) != 0) return object("it adds to more than one target");
    if (it.opcode == Opcode::add && !facts_of(schedule.collective).reduces)
        return object("it adds, where nothing is to be combined");
    if (it.left && it.opcode != Opcode::add && !(receives(it.opcode) && combines(it.opcode)))
        return object("it has a left operand, but adds nothing");
    if (Sentence found = object_to_number("the phase", it.phase, 0, is_flag ? 1 : 0)) return found;
    // A copy may finish only if it is of one rank's contribution; that has no average.
    if (it.finish && (!may_finish(it.opcode) || (it.opcode == Opcode::copy && schedule.ranks > 1)))
        return object("it finishes, but makes nothing new");
    if (Sentence found = object_to_number("the number of iterations", it.repeat, 1, repeat_most)) return found;
    if (Sentence found = object_to_number("the tile", it.tile, 0, schedule.tiles - 1)) return found;
    const int shared_buffers = slot | inputs | outputs | either;
    if (fused && !schedule.shared_ranks.empty() && !shared_by_all(schedule))
        return object("it is fused: it needs a flag block of all ranks");
    if (schedule.shared_ranks.empty() && (is_flag || fused || ((source | targets) & shared_buffers)))
        return object("it uses the flag block, but the header of the schedule does not contain `board`");
    return {};
}

Sentence object_to_dependency(const Schedule& schedule, int block, const Dependency& after) {
    if (after == Dependency()) return {};
    if (Sentence found = object_to_number("the distance of what it runs after", after.ago, 0, ago_most)) return found;
    if (after.block < 0 || after.block >= int(schedule.blocks.size()))
        return object("it runs after block {}, which does not exist", after.block);
    if (after.block == block) return object("it runs after a step of its own block, whose order is fixed");
    const int steps = int(schedule.blocks[after.block].instructions.size());
    if (after.step < 0 || after.step >= steps)
        return object("it runs after step {} of block {}, which has {} steps", after.step, after.block, steps);
    return {};
}

// Bits: whether the instruction posts phase 0 or 1, or waits for it.
int phases_of(const Instruction& it) {
    if (kind_of(it.opcode) == OpcodeKind::fused) return 3;
    return kind_of(it.opcode) == OpcodeKind::flag ? 1 << it.phase : 0;
}

}  // namespace

std::optional<Objection> find_objection(const Schedule& schedule) {
    if (Sentence found = object_to_header(schedule)) return Objection{-1, -1, *found};
    std::set<std::pair<int, int>> sources, targets;
    int phase_blocks[2] = {-1, -1};
    for (int b = 0; b < int(schedule.blocks.size()); ++b) {
        const Block& block = schedule.blocks[b];
        if (Sentence found = object_to_ends(schedule, block)) return Objection{b, -1, *found};
        if (block.source >= 0 && !sources.insert({block.channel, block.source}).second)
            return Objection{
                b, -1, fmt::format("a second block receives from rank {} on channel {}", block.source, block.channel)};
        if (block.target >= 0 && !targets.insert({block.channel, block.target}).second)
            return Objection{b, -1,
                             fmt::format("a second block sends to rank {} on channel {}", block.target, block.channel)};
        for (int s = 0; s < int(block.instructions.size()); ++s) {
            const Instruction& it = block.instructions[s];
            Sentence found = object_to_operands(schedule, block, it);
            if (!found) found = object_to_dependency(schedule, b, it.after);
            // In each phase, one block posts and waits for the rank, so that posts and waits have an order.
            for (int phase = 0; phase < 2 && !found; ++phase) {
                if (!(phases_of(it) >> phase & 1)) continue;
                if (phase_blocks[phase] >= 0 && phase_blocks[phase] != b)
                    found = object("it meets the other ranks, but block {} does so already", phase_blocks[phase]);
                phase_blocks[phase] = b;
            }
            if (found) return Objection{b, s, *found};
        }
    }
    return {};
}

static Status refuse(const Schedule& schedule, const std::optional<Objection>& found) {
    if (!found) return ok();
    std::string place = fmt::format("rank {}", schedule.rank);
    if (found->block >= 0) place += fmt::format(", block {}", found->block);
    if (found->step >= 0)
        place += fmt::format(", step {} ({})", found->step,
                             text_of(schedule.blocks[found->block].instructions[found->step]));
    return fail(error::schedule_invalid, "{}: {}", place, found->sentence);
}

Status validate(const Schedule& schedule) { return refuse(schedule, find_objection(schedule)); }

Status check_runnable(const Schedule& schedule) {
    for (int b = 0; b < int(schedule.blocks.size()); ++b)
        for (int s = 0; s < int(schedule.blocks[b].instructions.size()); ++s) {
            const Instruction& it = schedule.blocks[b].instructions[s];
            if ((it.source | it.targets) & (inputs | outputs | either))
                return refuse(schedule, Objection{b, s,
                                                  "inputs, outputs and either stand in the expansions of fused "
                                                  "instructions, which are there to be proved: to run, copy to slot "
                                                  "and reduce from there, or use one_shot or two_shot"});
        }
    return ok();
}

}  // namespace weft::internal
