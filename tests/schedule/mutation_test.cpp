// Tests the checker: schedules with one fault each must be refused, and the others must be correct in spite of the
// change.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>

#include "tests/catch.hpp"
#include "tests/schedule/cases.hpp"
#include "tests/schedule/mutation.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

// Two operations in a row, out of place, in place and mixed: a fault is found if one of them is refused. The flag block
// has no spare slot, which could hide faults.
static int slots_needed(const Case& one, int ranks) {
    const Way way = one.way;
    const bool two_levels = one.algorithm.find("two_level") == 0 || one.algorithm.find("leader") == 0;
    // A rank that forwards from a slot holds it longer than the flag block's next tile.
    if (two_levels && one.collective != Collective::all_reduce)
        return one.algorithm == "leader_halving_doubling" || one.algorithm == "leader_all_pairs" ||
                       facts_of(one.collective).reduces
                   ? 4
                   : 2;
    if (registry::find_algorithm(one.algorithm) && one.layout(ranks, 0).host_count() > 1) {
        size_t least = size_t(ranks);
        for (const auto host : one.layout(ranks, 0).ranks_by_host()) least = std::min(least, host.size());
        // A single owner stages nothing, and others' staged data is read before the next tile.
        return least == 1 || one.algorithm == "leader_doubling" ? 2 : 4;
    }
    if (way == Way::pipelined || way == Way::pipelined_mixed) return 3;
    // If no rank stages, a slot is first written after a wait for arrival flags, which all ranks post after their last
    // read.
    return way == Way::direct || way == Way::all_readable ? 1 : 2;
}

static Status check_mutant(const Case& one, const Mutant& mutant) {
    const int ranks = int(mutant.schedules.size());
    for (InPlaceMode place : in_place_modes) {
        Case here = one;
        here.place = place;
        CheckedOperation operation = operation_of(here, ranks);
        operation.schedule = [&](int rank) { return mutant.schedules[rank]; };
        const CheckedOperation twice[] = {operation, operation};
        WEFT_TRY(check(ranks, twice, mutant.options));
    }
    return ok();
}

// Two steps of a schedule side by side, in their original order.
struct Neighbours {
    const std::vector<Schedule>& schedules;
    const Block& block;
    int first;

    const Instruction* at(int step) const {
        return step < 0 || step >= int(block.instructions.size()) ? nullptr : &block.instructions[step];
    }
    // Whether the posts of the two waits (or posts) follow each other directly on every rank. Then a rank that sees one
    // of them knows of the other.
    bool paired(const Instruction* one, const Instruction* other) const {
        if (!one || !other || one->opcode != other->opcode || kind_of(one->opcode) != OpcodeKind::flag) return false;
        for (const Schedule& schedule : schedules)
            if (std::abs(post_of(schedule, *one) - post_of(schedule, *other)) != 1) return false;
        return true;
    }
    // Whether the ranks at the other ends run another block than that one for this connection.
    bool meets_another(int index) const {
        if (block.source < 0 || block.source != block.target) return false;
        const auto& blocks = schedules[size_t(block.source)].blocks;
        return size_t(index) >= blocks.size() || blocks[size_t(index)].source != 0;
    }
    static int post_of(const Schedule& schedule, const Instruction& about) {
        const auto& instructions = schedule.blocks[0].instructions;
        for (int step = 0; step < int(instructions.size()); ++step)
            if (instructions[step].opcode == Opcode::post && instructions[step].tile == about.tile &&
                instructions[step].phase == about.phase)
                return step;
        return -1000;
    }
};

// Whether the two use different memory of their rank, so that their order does not matter.
static bool disjoint(const Instruction& one, const Instruction& other, int ranks) {
    using Touched = std::set<std::tuple<Buffer, int, int>>;  // tile, chunk; input and output as one, as in place
    auto touch = [ranks](const Instruction& it, Touched& read, Touched& written) {
        for (int place = 0; place < it.repeat * it.count; ++place) {
            const int chunk = it.chunk.at(place / it.count, place % it.count);
            const int into = it.moves ? it.into.at(place) : chunk;
            // This rank does not write the data that a copy reads in another rank's slot.
            const bool own_slot = it.source == Buffer::slot && kind_of(it.opcode) == OpcodeKind::connection;
            if (own_slot) read.insert({Buffer::slot, it.tile, chunk});
            const auto cell = [&](int number, int otherwise) { return number < 0 ? otherwise : -1 - number; };
            if (it.source == Buffer::scratch) read.insert({Buffer::scratch, it.tile, cell(it.source_cell, chunk)});
            for (int rank = 0; it.source == Buffer::scratch && it.opcode == Opcode::reduce && rank < ranks; ++rank)
                read.insert({Buffer::scratch, it.tile, cell(rank, chunk)});
            if (it.opcode == Opcode::reduce || it.source == Buffer::input || it.source == Buffer::output)
                read.insert({Buffer::output, it.tile, chunk});
            for (const Buffer target : {Buffer::slot, Buffer::output, Buffer::scratch})
                if (it.targets & target)
                    written.insert({target, it.tile, cell(target == Buffer::scratch ? it.target_cell : -1, into)});
        }
    };
    Touched read[2], written[2];
    touch(one, read[0], written[0]);
    touch(other, read[1], written[1]);
    for (int i = 0; i < 2; ++i)
        for (const auto& place : written[i])
            if (read[1 - i].count(place) || written[1 - i].count(place)) return false;
    return true;
}

static bool halves(const std::string& algorithm) { return algorithm.find("halving") != std::string::npos; }

// The reason why a survivor is no fault; null if there is none.
static const char* harmless(const Case& one, const Mutant& mutant, const std::vector<Schedule>& original) {
    const int ranks = int(original.size());
    const bool chain = one.collective == Collective::broadcast || one.collective == Collective::reduce;
    const bool half_of_two = one.collective != Collective::all_reduce && mutant.schedules.size() == 2;
    if (mutant.fault == Fault::depth_one_less && (one.algorithm != "ring" || chain || half_of_two))
        return "it asks for more slots than it needs, so that tiles overlap";
    if (mutant.block < 0) return nullptr;
    const Neighbours here{original, original[std::max(mutant.rank, 0)].blocks[mutant.block], mutant.step};
    const Instruction *before = here.at(mutant.step - 1), *first = here.at(mutant.step),
                      *second = here.at(mutant.step + 1), *behind = here.at(mutant.step + 2);
    auto is_flag = [](const Instruction* it) { return kind_of(it->opcode) == OpcodeKind::flag; };
    auto is_local = [](const Instruction* it) { return it && kind_of(it->opcode) == OpcodeKind::local; };
    if (mutant.fault == Fault::shifted_chunk && one.way == Way::direct && mutant.rank < 0)
        return "all ranks reduce their neighbour's chunk: each still has its one rank, and the results go to all";
    // A one-shot that continues as a two-shot.
    if (one.way == Way::mixed && first && first->targets == Buffer::slot && first->repeat == ranks) {
        if (mutant.fault == Fault::shifted_chunk) return "all chunks are staged, whichever comes first";
        if (mutant.fault == Fault::shortened_loop) return "its own chunk, staged last, nobody reads there";
    }
    if (mutant.fault == Fault::missing_wait && (here.paired(before, first) || here.paired(first, second)))
        return "the wait beside it sees posts made back to back with these";
    // Along rails, all data from the own host is summed in one place.
    const Layout layout = one.layout(ranks, std::max(mutant.rank, 0));
    const bool inside = made_of_two(one.algorithm) && here.block.source >= 0 &&
                        layout.host_of(here.block.source) == layout.host_of(layout.rank);
    const bool exchange = one.algorithm.find("doubling") != std::string::npos && !halves(one.algorithm) &&
                          here.block.source == here.block.target && !inside;
    if (mutant.fault == Fault::exchanged_operands && (!exchange || mutant.rank < 0))
        return "the sum is made in one place, or by all who make it alike";
    if (mutant.fault != Fault::exchanged_neighbours || !second) return nullptr;
    // For an instruction that copies kept data: whether the other one does something else.
    const auto keeps = [&](const Instruction* it, const Instruction* other) {
        const bool looked_at = (other->source | other->targets) & Buffer::output && other->chunk == it->chunk;
        const bool for_itself = it->targets == Buffer::output || (it->targets == Buffer::scratch && is_flag(other));
        const bool own_slot = it->source == Buffer::slot && it->rank == Index{mutant.rank, 0, 1, 0} && is_flag(other);
        return it->opcode == Opcode::copy && (it->source == Buffer::input || own_slot) && for_itself && !looked_at;
    };
    if (keeps(first, second) || keeps(second, first)) return "what a rank copies for itself nobody waits for";
    if (one.collective == Collective::reduce && first->opcode == Opcode::reduce && first->targets == Buffer::output)
        return "nobody waits for what the root sums up for itself";
    // Dependencies move with their instructions, so a predecessor may come later now.
    const bool free = first->after == Dependency();
    if ((is_local(first) || is_local(second)) && free && !is_flag(first) && !is_flag(second) &&
        disjoint(*first, *second, ranks))
        return "the two work on different memory";
    if (mutant.rank >= 0 && first->opcode == Opcode::send && !is_flag(second) && disjoint(*first, *second, ranks))
        return "one rank receives before it sends, the others do not, and the two work on different memory";
    if (mutant.rank < 0 && first->opcode == Opcode::send && !is_flag(second) && disjoint(*first, *second, ranks) &&
        here.meets_another(mutant.block))
        return "who receives before it sends does so from a rank that does not, and the two work on different memory";
    const bool only_receives = kind_of(first->opcode) == OpcodeKind::connection && !sends(first->opcode);
    if (only_receives && second->opcode == Opcode::send && disjoint(*first, *second, ranks))
        return "it is sent before something else is received, there is room for it, and the two work on different "
               "memory";
    const auto only_waits = [](const Instruction* it) {
        return it->opcode == Opcode::wait || it->opcode == Opcode::nop;
    };
    if (only_waits(first) && only_waits(second)) return "both only wait, and what comes behind comes after both";
    if (here.paired(first, second)) return "nothing lies between the two";
    if (is_local(first) && here.paired(second, behind))
        return "the post behind still comes later, and all wait for both";
    if (is_local(second) && here.paired(before, first)) return "the wait before still comes earlier, and sees as much";
    if (first->opcode == Opcode::post && second->opcode == Opcode::wait) {
        bool posted_before = true;
        for (const Schedule& schedule : original)
            posted_before &= here.post_of(schedule, *second) < here.post_of(schedule, *first);
        if (posted_before) return "what is waited for is posted before this post by all";
    }
    if (first->opcode == Opcode::wait && first->tile == 0 && second->opcode == Opcode::copy &&
        second->targets == Buffer::slot && second->tile == 1)
        return "the slot of tile 1 was last used in the operation before, whose every done was waited for";
    if (first->opcode == Opcode::copy && first->source == Buffer::slot && second->opcode == Opcode::post &&
        second->phase == 1 && second->tile == original[0].tiles - 1 && first->tile < second->tile)
        return "the slot read is written again after the entries of the next operation, which come after both";
    return nullptr;
}

TEST_CASE("a fault in a schedule is found, or is none", "[schedule]") {
    const auto subjects_of = [](int ranks) {
        std::vector<Case> subjects = {{.algorithm = "two_block_ring"}};
        for (const Algorithm& row : registry::algorithms())
            for (Case one : cases_of(row, 2, ranks)) {
                if (one.place != InPlaceMode::out || (one.hosts != Hosts::one && anywhere(row, ranks))) continue;
                if (one.way == Way::pipelined || one.way == Way::pipelined_mixed) one.tiles = 4;
                subjects.push_back(one);
            }
        return subjects;
    };
    std::map<Fault, std::pair<int, int>> table;
    std::map<std::string, int> survivors;  // by reason
    for (int ranks : {2, 3, 4, 5}) {
        if (small() && sanitized && ranks > 3) continue;
        for (const Case& one : subjects_of(ranks)) {
            std::vector<Schedule> original;
            for (int rank = 0; rank < ranks; ++rank) original.push_back(schedule_of(one, ranks, rank));
            each_mutant(original, slots_needed(one, ranks), [&](const Mutant& mutant) {
                auto& [caught, made] = table[mutant.fault];
                ++made;
                if (!check_mutant(one, mutant)) {
                    ++caught;
                    return;
                }
                const char* reason = harmless(one, mutant, original);
                if (reason) ++survivors[fmt::format("{}: {}", name_of(mutant.fault), reason)];
                INFO(one.text() << ", " << ranks << " ranks: " << mutant.text);
                if (!reason) FAIL_CHECK("not caught");
            });
        }
    }
    for (const auto& [fault, counts] : table)
        std::printf("%-22s caught %5d of %5d\n", name_of(fault), counts.first, counts.second);
    for (const auto& [reason, count] : survivors) std::printf("  %4d no faults: %s\n", count, reason.c_str());
    CHECK(table.size() == size_t(fault_kinds));
}
