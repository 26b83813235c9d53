// proof_memory.cpp: reads and writes of instructions: their values, and accesses that may happen at the same time.

#include "src/checker/proof.hpp"

namespace weft::internal {

// Chunks in all slots together: about 512 MiB.
static constexpr size_t under_way_most = size_t(1) << 24;

// In an all-to-all, a chunk has different places at its sender and receiver; its expression identifies it.
static bool alike_chunks(const Schedule& schedule) { return !facts_of(schedule.collective).transposes; }

bool Proof::execute_connection(const StepContext& here) {
    const Opcode opcode = here.it->opcode;
    const bool receives = weft::internal::receives(opcode), sends = weft::internal::sends(opcode),
               reads = reads_source(opcode);
    const auto [source, target] = here.operation->ends[here.rank][here.block];
    SentChunks message;
    // Parts are equal, so in scratch a chunk may be in the place of another part's; its value identifies it.
    const bool in_scratch = here.it->source == Buffer::scratch || (here.it->targets & Buffer::scratch);
    bool alike = alike_chunks(*here.schedule);
    if (receives) {
        CheckedConnection& connection = connections_[source];
        message = std::move(connection.slots.front());
        connection.slots.pop_front();
        under_way_ -= message.values.size();
        queue(std::exchange(connection.blocked_sender, -1));
        if (message.values[0].second.tile != here.operation->first_tile + here.tile)
            return object(here, "it receives what rank {} sent for another tile, as its chunk {}, in step {}",
                          connection.source, message.chunk, message.step);
        if (here.schedule->parts() > 1 && (in_scratch || message.in_scratch)) alike = false;
        if (alike && message.chunk != here.chunk)
            return object(here, "it receives chunk {} of rank {} (sent in step {}) as chunk {}", message.chunk,
                          connection.source, message.step, here.chunk);
        if (message.count != here.it->count)
            return object(here, "it receives {} chunks where rank {} (in step {}) sends {}", here.it->count,
                          connection.source, message.step, message.count);
    }
    std::vector<std::pair<int, Value>> passed_on;
    size_t next = 0;  // index in the values of the message
    for (int offset = 0; offset < here.it->count; ++offset) {
        const StepContext there = here.at(offset);
        if (empty(there)) continue;
        Value value;
        if (receives) {
            // At least of the same size: the same share of a part.
            const int shares = alike ? here.schedule->chunks : here.schedule->chunks / here.schedule->parts();
            if (next == message.values.size() || message.values[next].first % shares != there.chunk % shares)
                return here.it->count == 1
                           ? object(there,
                                    "it receives chunk {} of rank {} (sent in step {}) as chunk {}, which can "
                                    "be of another size",
                                    message.chunk, connections_[source].source, message.step, there.chunk)
                           : object(there,
                                    "its span and that of rank {} (sent in step {}) go round at different places",
                                    connections_[source].source, message.step);
            value = message.values[next++].second;
        }
        if (reads) {
            Value own;
            if (!read(there, here.it->source, here.rank, own)) return false;
            if (receives && (value.finished || own.finished))
                return object(there, "it adds to chunk {}, which is finished already", there.chunk);
            value = !receives ? own : here.it->left ? Contributions::sum(own, value) : Contributions::sum(value, own);
        }
        if (here.it->finish && !finish(there, value)) return false;
        if (!write(there, here.it->targets, value)) return false;
        if (sends) passed_on.emplace_back(there.chunk, value);
    }
    if (next < message.values.size())
        return object(here, "it receives less than rank {} (in step {}) has sent", connections_[source].source,
                      message.step);
    if (sends) {
        CheckedConnection& connection = connections_[target];
        if ((under_way_ += passed_on.size()) > under_way_most)
            return object(error::schedule_limit, here,
                          "more than {} chunks are in flight at once, which is too many to check", under_way_most);
        connection.slots.push_back(
            {std::move(passed_on), here.chunk, here.it->count, here.step, in_scratch || message.in_scratch});
        queue(std::exchange(connection.blocked_receiver, -1));
    }
    return true;
}

bool Proof::execute_copy(const StepContext& here) {
    Value value;
    const int rank = here.it->source == Buffer::slot ? here.it->rank.at(here.iteration) : here.rank;
    if (!read(here, here.it->source, rank, value) || (here.it->finish && !finish(here, value))) return false;
    // In place, a chunk that is kept is already there. A contribution may be scaled on its way.
    const bool stays = here.it->source == Buffer::input && here.it->targets == Buffer::output && !here.it->moves &&
                       rank_states_[here.rank].in_place && !facts_of(here.schedule->collective).reduces;
    if (stays) return holds_output(here, rank) || write(here, here.it->targets, value);
    if (!here.it->moves) return write(here, here.it->targets, value);
    StepContext there = here;
    there.chunk = here.it->into.at(here.iteration);
    const int shares = here.schedule->chunks / here.schedule->parts();
    if (there.chunk % shares != here.chunk % shares)
        return object(here, "it copies chunk {} into chunk {}, which can be of another size", here.chunk, there.chunk);
    return write(there, here.it->targets, value);
}

bool Proof::execute_add(const StepContext& here) {
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
        return object(here, "it adds to chunk {}, which is finished already", here.chunk);
    value = here.it->left ? Contributions::sum(added, value) : Contributions::sum(value, added);
    return (!here.it->finish || finish(here, value)) && write(here, here.it->targets, value);
}

bool Proof::execute_reduce(const StepContext& here) {
    Value sum;
    sum.tile = here.operation->first_tile + here.tile;
    // Scratch of all ranks, else slots of the flag block's ranks.
    const bool from_scratch = here.it->source == Buffer::scratch;
    const int count = from_scratch ? ranks_ : int(members(here).size());
    for (int i = 0; i < count; ++i) {
        const int rank = from_scratch ? i : members(here)[size_t(i)];
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
            return object(here, "it adds chunk {} of rank {}, which is finished already", here.chunk, rank);
        Contributions::accumulate(sum, value);
    }
    return (!here.it->finish || finish(here, sum)) && write(here, here.it->targets, sum);
}

bool Proof::finish(const StepContext& here, Value& value) {
    if (value.finished) return object(here, "it finishes chunk {} a second time", here.chunk);
    if (!contributions_.complete(value, here.chunk))
        return object(here, "it finishes chunk {}, which {}", here.chunk, contributions_.fault(value, here.chunk));
    Contributions::finish(value);
    return true;
}

// Buffers of a rank are valid from its call to its return. Other ranks access them only in the same operation.
bool Proof::same_call(const StepContext& here, Buffer buffer, int rank) {
    const int now = rank_states_[here.rank].operation, other = rank_states_[rank].operation;
    if (now == other) return true;
    return object(error::schedule_race, here, "it uses the {} of rank {}, which {} operation {}", name_of(buffer), rank,
                  other < now ? "may not have begun" : "may have returned from", now);
}

Cell& Proof::output_cell(const StepContext& here, int rank) {
    RankProgress& owner = rank_states_[rank];
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
Proof::SlotCells* Proof::enter(const StepContext& here, Buffer buffer, int rank) {
    const bool in_slot = buffer == Buffer::slot;
    const int64_t tile = in_slot ? flag_tile(here) : int64_t(here.operation->first_tile) + here.tile;
    SlotCells& slot =
        in_slot ? slots_[size_t(rank) * options_.flag_slots + tile % options_.flag_slots] : scratches_[size_t(rank)];
    if (slot.tile > tile) {
        object(error::schedule_race, here, "it uses the {} of rank {}, which tile {} {} may use already, for tile {}",
               name_of(buffer), rank, slot.tile, in_slot ? "of the flag block" : "of all", tile);
        return nullptr;
    }
    if (slot.tile == tile) return &slot;
    if (slot.tile >= 0 && slot.earlier.empty()) slot.earlier.resize(clocks_->width());
    auto keep = [&](const ChunkAccess& access) {
        if (access.thread < 0) return true;
        ChunkAccess& newest = slot.earlier[clocks_->column(access.thread)];
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

bool Proof::holds_input(const StepContext& here, int rank) const {
    const Schedule& schedule = *here.schedule;
    return holds(input_of(schedule.collective, rank, schedule.root), schedule.part_of(here.chunk), rank);
}

bool Proof::holds_output(const StepContext& here, int rank) const {
    const Schedule& schedule = *here.schedule;
    return holds(output_of(schedule.collective, rank, schedule.root), schedule.part_of(here.chunk), rank);
}

bool Proof::read(const StepContext& here, Buffer buffer, int rank, Value& value) {
    if (buffer == Buffer::slot || buffer == Buffer::scratch) {
        SlotCells* slot = enter(here, buffer, rank);
        if (slot && buffer == Buffer::scratch) return read_scratch(here, *slot, here.it->source_cell, value);
        return slot && read_cell(here, slot->cells[here.chunk], buffer, rank, value);
    }
    if (!(buffer == Buffer::output ? holds_output(here, rank) : holds_input(here, rank)))
        return object(here, "it reads chunk {}, which the {} of rank {} does not hold", here.chunk, name_of(buffer),
                      rank);
    if (!same_call(here, buffer, rank)) return false;
    RankProgress& owner = rank_states_[rank];
    if (buffer == Buffer::output || owner.in_place) {
        Cell& cell = output_cell(here, rank);
        // Executors scale everything that they read as input, even if it is already changed.
        if (buffer != Buffer::output && cell.write.step >= 0 && facts_of(here.schedule->collective).reduces)
            return object(here,
                          "it reads chunk {} of the input of rank {}, which in place is the output, written by {}",
                          here.chunk, rank, place(cell.write));
        return read_cell(here, cell, buffer, rank, value);
    }
    // Out of place, the input is not written during the call. It needs no cells, only its readers are kept.
    if (!clocks_->ordered(owner.start, here.thread))
        return object_to_race(here, "reads", owner.start, "written", buffer, rank);
    value = input_leaf(here, rank);
    if (rank != here.rank) {
        if (owner.input_readers.empty()) owner.input_readers.resize(clocks_->width());
        owner.input_readers[clocks_->column(here.thread)] = access(here);
    }
    return true;
}

// The content of a cell of scratch is as long as the chunk that was written there.
bool Proof::read_scratch(const StepContext& here, SlotCells& slot, int number, Value& value) {
    if (number < 0) return read_cell(here, slot.cells[here.chunk], Buffer::scratch, here.rank, value);
    Cell& cell = slot.cells[number];
    if (!read_cell(here, cell, Buffer::scratch, here.rank, value)) return false;
    const Schedule& schedule = *here.schedule;
    const int alike = alike_chunks(schedule) ? schedule.chunks : schedule.chunks / schedule.parts();
    if (cell.chunk % alike == here.chunk % alike) return true;
    return object(here, "it reads chunk {} from cell {} of scratch, which holds chunk {}", here.chunk, number,
                  cell.chunk);
}

bool Proof::read_cell(const StepContext& here, Cell& cell, Buffer buffer, int rank, Value& value) {
    if (!clocks_->ordered(cell.write, here.thread))
        return object_to_race(here, "reads", cell.write, "written", buffer, rank);
    if (!cell.value.defined())
        return object(here, "it reads chunk {} of the {} of rank {}, where nothing was written yet", here.chunk,
                      name_of(buffer), rank);
    if (reads_.full()) return object(error::schedule_limit, here, "there are too many reads to check");
    value = cell.value;
    reads_.add(cell, access(here));
    return true;
}

bool Proof::write(const StepContext& here, unsigned targets, const Value& value) {
    const auto write_output = [&](int rank) {
        if (!holds_output(here, rank))
            return object(here, "it writes chunk {}, which the output of rank {} does not hold", here.chunk, rank);
        return same_call(here, Buffer::output, rank) &&
               write_cell(here, output_cell(here, rank), Buffer::output, rank, value);
    };
    if ((targets & Buffer::output) && !write_output(here.rank)) return false;
    if (targets & Buffer::outputs)
        for (const int32_t rank : members(here))
            if (!write_output(rank)) return false;
    for (const Buffer buffer : {Buffer::slot, Buffer::scratch}) {
        if (!(targets & buffer)) continue;
        SlotCells* slot = enter(here, buffer, here.rank);
        if (!slot) return false;
        // Tiles differ in sizes and chunks, so this tile can overwrite everything that an earlier tile accessed.
        if (slot->checked_thread != here.thread) {
            for (const ChunkAccess& earlier : slot->earlier)
                if (!clocks_->ordered(earlier, here.thread))
                    return object_to_race(here, "overwrites", earlier, "used for an earlier tile", buffer, here.rank);
            slot->checked_thread = here.thread;
        }
        const bool placed = buffer == Buffer::scratch && here.it->target_cell >= 0;
        Cell& cell = slot->cells[placed ? here.it->target_cell : here.chunk];
        if (!write_cell(here, cell, buffer, here.rank, value)) return false;
        cell.chunk = here.chunk;
    }
    return true;
}

bool Proof::write_cell(const StepContext& here, Cell& cell, Buffer buffer, int rank, const Value& value) {
    if (!clocks_->ordered(cell.write, here.thread))
        return object_to_race(here, "writes", cell.write, "written", buffer, rank);
    const bool alone = reads_.each(cell, [&](const ChunkAccess& earlier) {
        return clocks_->ordered(earlier, here.thread) || object_to_race(here, "writes", earlier, "read", buffer, rank);
    });
    if (!alone) return false;
    reads_.clear(cell);
    cell.write = access(here);
    cell.value = value;
    return true;
}

// The expression of the sum that is rounded once, as execute_reduce() makes it.
uint64_t Proof::in_rank_order(uint32_t tile, int chunk) const {
    Value sum;
    if (ranks_ == 1) sum = contributions_.leaf(0, tile, uint32_t(chunk));
    for (int rank = 0; ranks_ > 1 && rank < ranks_; ++rank)
        Contributions::accumulate(sum, contributions_.leaf(rank, tile, uint32_t(chunk)));
    Contributions::finish(sum);
    return sum.expression;
}

// The fault of a cell of the output; empty: none.
std::string Proof::fault(OperationState& operation, const Cell& cell, int rank, int tile, int chunk) {
    const Schedule& schedule = operation.schedules[size_t(rank)];
    if (!cell.value.defined()) return "is not written when it returns";
    const auto writer = [&] {
        return cell.write.step < 0 ? "; nothing was written there" : ", written by " + place(cell.write);
    };
    if (!facts_of(schedule.collective).reduces) {
        // One rank's chunk: of the same place or, if every rank has a part for every rank, of the place of `rank`.
        const int shares = schedule.chunks / schedule.parts(), part = chunk / shares;
        const bool transposed = facts_of(schedule.collective).transposes;
        const bool from_root = facts_of(schedule.collective).input_of_others == Held::nothing;
        const int giver = from_root ? schedule.root : part;
        const int given = transposed ? rank * shares + chunk % shares : chunk;
        const Value right = contributions_.leaf(giver, operation.first_tile + tile, given);
        if (cell.value.expression == right.expression) return {};
        return fmt::format("is not chunk {} of rank {}{}", given, giver, writer());
    }
    if (!contributions_.complete(cell.value, chunk)) return contributions_.fault(cell.value, chunk) + writer();
    if (!cell.value.finished) return "is complete but not finished" + writer();
    uint64_t& result = operation.results[size_t(tile) * schedule.chunks + chunk];
    if (result == 0) {
        result = cell.value.expression;
        in_rank_order_ &= result == in_rank_order(operation.first_tile + uint32_t(tile), chunk);
    }
    if (result == cell.value.expression) return {};
    orders_differ_ = true;
    in_rank_order_ = false;
    return options_.any_order ? std::string() : "is summed in another order than on other ranks" + writer();
}

// At the return of `rank`: its output is correct, and no rank accesses its buffers any more.
bool Proof::check_result(int rank) {
    RankProgress& state = rank_states_[rank];
    OperationState& operation = operations_[state.operation];
    const Schedule& schedule = operation.schedules[rank];
    const Held held = output_of(schedule.collective, rank, schedule.root);
    const int thread = rank * blocks_;
    auto returned = [&](const ChunkAccess& access) {
        if (clocks_->ordered(access, thread)) return true;
        failure_ = fail(error::schedule_race,
                        "operation {}, rank {}: it returns to its user while {} may still use its buffers",
                        state.operation, rank, place(access));
        return false;
    };
    const Cell untouched;
    for (int tile = 0; tile < operation.tiles; ++tile) {
        auto& cells = state.output[tile];
        for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
            if (operation.empty_chunks[tile + 1 == operation.tiles][chunk]) continue;
            if (holds(held, schedule.part_of(chunk), rank)) {
                const std::string wrong = fault(operation, cells.empty() ? untouched : cells[chunk], rank, tile, chunk);
                if (!wrong.empty()) {
                    failure_ = fail(error::schedule_result, "operation {}, rank {}: chunk {} of its output{} {}",
                                    state.operation, rank, chunk,
                                    operation.tiles > 1 ? fmt::format(" in tile {}", tile) : "", wrong);
                    return false;
                }
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
    return true;
}

}  // namespace weft::internal
