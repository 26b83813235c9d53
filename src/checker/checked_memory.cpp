#include "src/checker/checked_memory.hpp"

#include <algorithm>

namespace weft::internal {

static bool holds_input(const StepContext& here, int rank) {
    const Schedule& schedule = *here.schedule;
    return holds(input_of(schedule.collective, rank, schedule.root), schedule.part_of(here.chunk), rank);
}

static bool holds_output(const StepContext& here, int rank) {
    const Schedule& schedule = *here.schedule;
    return holds(output_of(schedule.collective, rank, schedule.root), schedule.part_of(here.chunk), rank);
}

CheckedMemory::CheckedMemory(const CheckedSet& set, Clocks& clocks, Verdict& verdict)
    : set_(set),
      clocks_(clocks),
      verdict_(verdict),
      contributions_(set.ranks()),
      results_(set, contributions_, verdict),
      ranks_(size_t(set.ranks())) {
    if (!set.flag_blocks().empty()) slots_.resize(size_t(set.ranks()) * size_t(set.options().flag_slots));
    for (const LoadedOperation& operation : set.operations())
        if (std::any_of(operation.schedules.begin(), operation.schedules.end(), has_scratch))
            scratches_.resize(size_t(set.ranks()));
}

void CheckedMemory::begin(int rank, int operation, const ChunkAccess& start) {
    RankBuffers& state = ranks_[size_t(rank)];
    const LoadedOperation& loaded = set_.operations()[size_t(operation)];
    const std::vector<bool>& in_place = loaded.call->in_place;
    state.operation = operation;
    state.in_place = !in_place.empty() && in_place[size_t(rank)];
    state.start = start;
    state.output.assign(size_t(loaded.tiles), {});
    state.input_readers.clear();
}

bool CheckedMemory::execute(const StepContext& here) {
    return here.it->opcode == Opcode::copy  ? execute_copy(here)
           : here.it->opcode == Opcode::add ? execute_add(here)
                                            : execute_reduce(here);
}

bool CheckedMemory::execute_copy(const StepContext& here) {
    Value value;
    const int rank = here.it->source == Buffer::slot ? here.it->rank.at(here.iteration) : here.rank;
    if (!read(here, here.it->source, rank, value) || (here.it->finish && !finish(here, value))) return false;
    // In place, a chunk that is kept is already there. A contribution may be scaled on its way.
    const bool stays = here.it->source == Buffer::input && here.it->targets == Buffer::output && !here.it->moves &&
                       ranks_[here.rank].in_place && !facts_of(here.schedule->collective).reduces;
    if (stays) return holds_output(here, rank) || write(here, here.it->targets, value);
    if (!here.it->moves) return write(here, here.it->targets, value);
    StepContext there = here;
    there.chunk = here.it->into.at(here.iteration);
    const int shares = here.schedule->chunks / here.schedule->parts();
    if (there.chunk % shares != here.chunk % shares)
        return verdict_.object(here, "it copies chunk {} into chunk {}, which can be of another size", here.chunk,
                               there.chunk);
    return write(there, here.it->targets, value);
}

bool CheckedMemory::execute_add(const StepContext& here) {
    Value added, value;
    const bool in_scratch = here.it->targets == Buffer::scratch;
    if (!read(here, here.it->source, here.rank, added)) return false;
    if (in_scratch) {
        SlotCells* slot = enter(here, Buffer::scratch, here.rank);
        if (!slot || !read_scratch(here, *slot, here.it->target_cell, value)) return false;
    } else if (!read(here, Buffer::output, here.rank, value)) {
        return false;
    }
    if (value.finished || added.finished)
        return verdict_.object(here, "it adds to chunk {}, which is finished already", here.chunk);
    value = here.it->left ? Contributions::sum(added, value) : Contributions::sum(value, added);
    return (!here.it->finish || finish(here, value)) && write(here, here.it->targets, value);
}

bool CheckedMemory::execute_reduce(const StepContext& here) {
    Value sum;
    sum.tile = here.operation->first_tile + here.tile;
    // Scratch of all ranks, else slots of the flag block's ranks.
    const bool from_scratch = here.it->source == Buffer::scratch;
    const int count = from_scratch ? set_.ranks() : int(set_.members(here.rank).size());
    for (int i = 0; i < count; ++i) {
        const int rank = from_scratch ? i : set_.members(here.rank)[size_t(i)];
        const bool in_place = rank == here.rank || here.it->source == Buffer::inputs ||
                              (here.it->source == Buffer::either && here.operation->call->mode.reads(rank));
        Value value;
        if (from_scratch && !in_place) {
            SlotCells* slot = enter(here, Buffer::scratch, here.rank);
            if (!slot || !read_scratch(here, *slot, rank, value)) return false;
        } else if (!read(here, in_place ? Buffer::input : Buffer::slot, rank, value)) {
            return false;
        }
        if (value.finished)
            return verdict_.object(here, "it adds chunk {} of rank {}, which is finished already", here.chunk, rank);
        Contributions::accumulate(sum, value);
    }
    return (!here.it->finish || finish(here, sum)) && write(here, here.it->targets, sum);
}

bool CheckedMemory::finish(const StepContext& here, Value& value) {
    if (value.finished) return verdict_.object(here, "it finishes chunk {} a second time", here.chunk);
    if (!contributions_.complete(value, here.chunk))
        return verdict_.object(here, "it finishes chunk {}, which {}", here.chunk,
                               contributions_.fault(value, here.chunk));
    Contributions::finish(value);
    return true;
}

// Buffers of a rank are valid from its call to its return. Other ranks access them only in the same operation.
bool CheckedMemory::same_call(const StepContext& here, Buffer buffer, int rank) {
    const int now = here.number, other = ranks_[size_t(rank)].operation;
    if (now == other) return true;
    return verdict_.object(error::schedule_race, here, "it uses the {} of rank {}, which {} operation {}",
                           name_of(buffer), rank, other < now ? "may not have begun" : "may have returned from", now);
}

Cell& CheckedMemory::output_cell(const StepContext& here, int rank) {
    RankBuffers& owner = ranks_[rank];
    auto& cells = owner.output[here.tile];
    if (cells.empty()) {
        cells.resize(here.schedule->chunks);
        for (int chunk = 0; chunk < here.schedule->chunks; ++chunk) {
            StepContext there = here;
            there.chunk = chunk;
            if (owner.in_place && holds_input(there, rank)) cells[chunk].value = input_leaf(there, rank);
            cells[chunk].write = owner.start;
        }
    }
    return cells[here.chunk];
}

// The slot of `rank` for this tile, or its scratch. The first access to a tile keeps the accesses of earlier tiles.
CheckedMemory::SlotCells* CheckedMemory::enter(const StepContext& here, Buffer buffer, int rank) {
    const bool in_slot = buffer == Buffer::slot;
    const int64_t tile = in_slot ? here.flag_tile() : int64_t(here.operation->first_tile) + here.tile;
    SlotCells& slot = in_slot ? slots_[size_t(rank) * set_.options().flag_slots + tile % set_.options().flag_slots]
                              : scratches_[size_t(rank)];
    if (slot.tile > tile) {
        verdict_.object(error::schedule_race, here,
                        "it uses the {} of rank {}, which tile {} {} may use already, for tile {}", name_of(buffer),
                        rank, slot.tile, in_slot ? "of the flag block" : "of all", tile);
        return nullptr;
    }
    if (slot.tile == tile) return &slot;
    if (slot.tile >= 0 && slot.earlier.empty()) slot.earlier.resize(clocks_.width());
    auto keep = [&](const ChunkAccess& access) {
        if (access.thread < 0) return true;
        ChunkAccess& newest = slot.earlier[clocks_.column(access.thread)];
        if (newest.thread < 0 || newest.clock <= access.clock) newest = access;
        return true;
    };
    for (Cell& cell : slot.cells) {
        keep(cell.write);
        reads_.each(cell, keep);
        reads_.clear(cell);
    }
    slot.tile = tile;
    slot.checked_thread = -1;
    const Schedule& schedule = *here.schedule;
    slot.cells.assign(
        size_t(!in_slot && schedule.scratch > 0 ? schedule.scratch : int64_t(schedule.wide) * schedule.chunks), {});
    return &slot;
}

bool CheckedMemory::read(const StepContext& here, Buffer buffer, int rank, Value& value) {
    if (buffer == Buffer::slot || buffer == Buffer::scratch) {
        SlotCells* slot = enter(here, buffer, rank);
        if (slot && buffer == Buffer::scratch) return read_scratch(here, *slot, here.it->source_cell, value);
        return slot && read_cell(here, slot->cells[here.chunk], buffer, rank, value);
    }
    if (!(buffer == Buffer::output ? holds_output(here, rank) : holds_input(here, rank)))
        return verdict_.object(here, "it reads chunk {}, which the {} of rank {} does not hold", here.chunk,
                               name_of(buffer), rank);
    if (!same_call(here, buffer, rank)) return false;
    RankBuffers& owner = ranks_[rank];
    if (buffer == Buffer::output || owner.in_place) {
        Cell& cell = output_cell(here, rank);
        // Executors scale everything that they read as input, even if it is already changed.
        if (buffer != Buffer::output && cell.write.step >= 0 && facts_of(here.schedule->collective).reduces)
            return verdict_.object(
                here, "it reads chunk {} of the input of rank {}, which in place is the output, written by {}",
                here.chunk, rank, verdict_.place(cell.write));
        return read_cell(here, cell, buffer, rank, value);
    }
    // Out of place, the input is not written during the call. It needs no cells, only its readers are kept.
    if (!clocks_.ordered(owner.start, here.thread))
        return verdict_.object_to_race(here, "reads", owner.start, "written", buffer, rank);
    value = input_leaf(here, rank);
    if (rank != here.rank) {
        if (owner.input_readers.empty()) owner.input_readers.resize(clocks_.width());
        owner.input_readers[clocks_.column(here.thread)] = access(here);
    }
    return true;
}

// The content of a cell of scratch is as long as the chunk that was written there.
bool CheckedMemory::read_scratch(const StepContext& here, SlotCells& slot, int number, Value& value) {
    if (number < 0) return read_cell(here, slot.cells[here.chunk], Buffer::scratch, here.rank, value);
    Cell& cell = slot.cells[number];
    if (!read_cell(here, cell, Buffer::scratch, here.rank, value)) return false;
    const Schedule& schedule = *here.schedule;
    const int alike = here.alike_chunks() ? schedule.chunks : schedule.chunks / schedule.parts();
    if (cell.chunk % alike == here.chunk % alike) return true;
    return verdict_.object(here, "it reads chunk {} from cell {} of scratch, which holds chunk {}", here.chunk, number,
                           cell.chunk);
}

bool CheckedMemory::read_cell(const StepContext& here, Cell& cell, Buffer buffer, int rank, Value& value) {
    if (!clocks_.ordered(cell.write, here.thread))
        return verdict_.object_to_race(here, "reads", cell.write, "written", buffer, rank);
    if (!cell.value.defined())
        return verdict_.object(here, "it reads chunk {} of the {} of rank {}, where nothing was written yet",
                               here.chunk, name_of(buffer), rank);
    if (reads_.full()) return verdict_.object(error::schedule_limit, here, "there are too many reads to check");
    value = cell.value;
    reads_.add(cell, access(here));
    return true;
}

bool CheckedMemory::write(const StepContext& here, unsigned targets, const Value& value) {
    const auto write_output = [&](int rank) {
        if (!holds_output(here, rank))
            return verdict_.object(here, "it writes chunk {}, which the output of rank {} does not hold", here.chunk,
                                   rank);
        return same_call(here, Buffer::output, rank) &&
               write_cell(here, output_cell(here, rank), Buffer::output, rank, value);
    };
    if ((targets & Buffer::output) && !write_output(here.rank)) return false;
    if (targets & Buffer::outputs)
        for (const int32_t rank : set_.members(here.rank))
            if (!write_output(rank)) return false;
    for (const Buffer buffer : {Buffer::slot, Buffer::scratch}) {
        if (!(targets & buffer)) continue;
        SlotCells* slot = enter(here, buffer, here.rank);
        if (!slot) return false;
        // Tiles differ in sizes and chunks, so this tile can overwrite everything that an earlier tile accessed.
        if (slot->checked_thread != here.thread) {
            for (const ChunkAccess& earlier : slot->earlier)
                if (!clocks_.ordered(earlier, here.thread))
                    return verdict_.object_to_race(here, "overwrites", earlier, "used for an earlier tile", buffer,
                                                   here.rank);
            slot->checked_thread = here.thread;
        }
        const bool placed = buffer == Buffer::scratch && here.it->target_cell >= 0;
        Cell& cell = slot->cells[placed ? here.it->target_cell : here.chunk];
        if (!write_cell(here, cell, buffer, here.rank, value)) return false;
        cell.chunk = here.chunk;
    }
    return true;
}

bool CheckedMemory::write_cell(const StepContext& here, Cell& cell, Buffer buffer, int rank, const Value& value) {
    if (!clocks_.ordered(cell.write, here.thread))
        return verdict_.object_to_race(here, "writes", cell.write, "written", buffer, rank);
    const bool alone = reads_.each(cell, [&](const ChunkAccess& earlier) {
        return clocks_.ordered(earlier, here.thread) ||
               verdict_.object_to_race(here, "writes", earlier, "read", buffer, rank);
    });
    if (!alone) return false;
    reads_.clear(cell);
    cell.write = access(here);
    cell.value = value;
    return true;
}

// At the return of `rank`: its output is correct, and no rank accesses its buffers any more.
bool CheckedMemory::end(int rank) {
    RankBuffers& state = ranks_[rank];
    const LoadedOperation& operation = set_.operations()[state.operation];
    const Schedule& schedule = operation.schedules[rank];
    const Held held = output_of(schedule.collective, rank, schedule.root);
    const int thread = rank * set_.blocks();
    auto returned = [&](const ChunkAccess& access) {
        if (clocks_.ordered(access, thread)) return true;
        return verdict_.object(fail(error::schedule_race,
                                    "operation {}, rank {}: it returns to its user while {} may still use its buffers",
                                    state.operation, rank, verdict_.place(access)));
    };
    const Cell untouched;
    for (int tile = 0; tile < operation.tiles; ++tile) {
        auto& cells = state.output[tile];
        for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
            if (operation.empty(tile, chunk)) continue;
            if (holds(held, schedule.part_of(chunk), rank)) {
                const std::string wrong =
                    results_.fault(state.operation, cells.empty() ? untouched : cells[chunk], rank, tile, chunk);
                if (!wrong.empty())
                    return verdict_.object(fail(
                        error::schedule_result, "operation {}, rank {}: chunk {} of its output{} {}", state.operation,
                        rank, chunk, operation.tiles > 1 ? fmt::format(" in tile {}", tile) : "", wrong));
            }
            if (cells.empty()) continue;
            // In place, other ranks may have read chunks that only the input holds.
            if (!returned(cells[chunk].write) || !reads_.each(cells[chunk], returned)) return false;
            reads_.clear(cells[chunk]);
        }
    }
    for (const ChunkAccess& access : state.input_readers)
        if (!returned(access)) return false;
    state.output.clear();
    ++state.operation;
    return true;
}

}  // namespace weft::internal
