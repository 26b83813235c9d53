// shared_memory_collective.cpp: one-shot and two-shot over a flag block (docs/design/shared-memory-protocol.md). They do the
// steps of their expansions (src/schedule/expand.cpp) without one instruction per chunk. Tiles of a long message overlap.
#include <cstring>

#include "src/executor/run.hpp"

namespace weft::internal {

// Each rank stages and reduces everything: one wait per tile.
Progress Run::one_shot(BlockState& state) {
    const Plan& plan = *plan_;
    for (;;) {
        if (state.stage == Stage::begin) {
            const size_t length = plan.tile_length(state.tile);
            copy_input(length <= inline_bytes ? line(rank_, state.tile).payload : slot(rank_, state.tile),
                       state.tile * plan.tile_bytes, length, &flag_block_stores());
            post_arrival(state.tile);
            arm(state.tile, no_tile);
            state.stage = Stage::arrivals;
        }
        if (const Progress progress = poll(); progress != Progress::moved) return progress;
        reduce_whole(state.tile);
        state.stage = Stage::begin;
        if (++state.tile == plan.tiles) {
            plan.flag_block->tile = base_tile_ + uint32_t(plan.tiles);
            return Progress::done;
        }
    }
}

// Reduces the staged inputs of all ranks. They lie in payloads if these hold no buffer addresses.
void Run::reduce_whole(uint64_t tile) {
    const Plan& plan = *plan_;
    const size_t length = plan.tile_length(tile), offset = tile * plan.tile_bytes;
    const bool inside_line = length <= inline_bytes && !plan.exports_buffers;
    for (int rank = 0; rank < ranks_; ++rank)
        sources_[size_t(rank)] = inside_line ? line(rank, tile).payload : slot(rank, tile);
    if (!plan.scaled()) sources_[size_t(rank_)] = send_ + offset;  // the same data, and in our cache
    if (length == 0) return;
    void* destination = receive_ + offset;
    reduce(&destination, 1, sources_.data(), ranks_, length, true, 1);
}

void Run::stage_input(uint64_t tile) {
    const int count = staging_jobs(tile, Stores::ordinary, staging_.data());  // copy_input says how
    const size_t tile_offset = tile * plan_->tile_bytes;
    for (int i = 0; i < count; ++i) {
        auto* destination = static_cast<std::byte*>(staging_[size_t(i)].destination);
        copy_input(destination, tile_offset + size_t(destination - slot(rank_, tile)), staging_[size_t(i)].bytes,
                   &flag_block_stores());
    }
}

// The chunks of other ranks, before and behind our own chunk. A one-shot stages everything.
int Run::staging_jobs(uint64_t tile, Stores stores, CopyJob* jobs) {
    if (exports_input_) return 0;
    const size_t length = plan_->tile_length(tile);
    const Range own = stages_whole_ ? Range{0, 0} : chunk_of(tile, rank_);
    const size_t behind = own.tile_offset + own.bytes;
    const std::byte* input = send_ + tile * plan_->tile_bytes;
    std::byte* staged = slot(rank_, tile);
    int count = 0;
    if (own.tile_offset > 0) jobs[count++] = {staged, input, own.tile_offset, stores};
    if (behind < length) jobs[count++] = {staged + behind, input + behind, length - behind, stores};
    return count;
}

int Run::result_jobs(uint64_t tile, CopyJob* jobs) {
    int count = 0;
    for (int distance = 1; distance < ranks_; ++distance) {  // ranks begin at different peers
        const int rank = rank_ + distance < ranks_ ? rank_ + distance : rank_ + distance - ranks_;
        const Range range = chunk_of(tile, rank);
        if (range.bytes == 0) continue;
        jobs[count++] = {receive_ + tile * plan_->tile_bytes + range.tile_offset, slot(rank, tile) + range.tile_offset,
                         range.bytes, plan_->stores};
    }
    return count;
}

void Run::copy_results(uint64_t tile) {
    const int count = result_jobs(tile, results_.data());
    for (int i = 0; i < count; ++i) plan_->cpu_kernels->copy(results_[size_t(i)]);
}

void Run::post_addresses_and_arrival(uint64_t tile) {
    BufferAddresses addresses{};
    exports_input_ = false;
    if (plan_->exports_buffers) {
        addresses.send_address = plan_->direct_access->export_buffer(send_, plan_->bytes());
        addresses.receive_address = plan_->direct_access->export_buffer(receive_, plan_->bytes());
        exports_input_ = addresses.send_address != 0 && plan_->direct_access->state() == DirectAccess::State::ready;
    }
    if (plan_->cma) {
        addresses.own_send_address = reinterpret_cast<uint64_t>(send_);
        addresses.own_receive_address = reinterpret_cast<uint64_t>(receive_);
        exports_input_ |= uses_cma();
    }
    // Peers may access the exported buffers once the arrival flag is posted.
    shares_buffers_ = exports_input_;
    last_tile_ = plan_->tiles - 1;
    stage_input(tile);
    memcpy(line(rank_, tile).payload, &addresses, sizeof addresses);
    post_arrival(tile);
}

bool Run::nobody_exports() const {
    uint64_t offered = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
        BufferAddresses addresses;
        memcpy(&addresses, line(rank, 0).payload, sizeof addresses);
        offered |= addresses.send_address | addresses.receive_address;
    }
    return offered == 0;
}

// Decides, from the payloads of all ranks, which inputs are read in place and whether the operation is direct. If addresses
// were exported before it is known whether arenas can be mapped, a round of agreement follows the last tile.
Progress Run::decide(BlockState& state) {
    one_phase_ = stages_whole_ && !plan_->cma && nobody_exports();
    if (one_phase_) {  // spares short messages the rest
        agreement_due_ = 0;
        return Progress::moved;
    }
    agreement_due_ = plan_->cma && plan_->cma->state() == Cma::State::unknown ? uint32_t(Agreement::cma_probed) : 0;
    const DirectAccess::State access =
        plan_->exports_buffers ? plan_->direct_access->state() : DirectAccess::State::refused;
    bool all = access == DirectAccess::State::ready;
    for (int rank = 0; rank < ranks_; ++rank) {
        BufferAddresses addresses;
        memcpy(&addresses, line(rank, 0).payload, sizeof addresses);
        const bool readable = access == DirectAccess::State::ready && addresses.send_address != 0;
        inputs_[size_t(rank)] = readable ? plan_->direct_access->translate(rank, addresses.send_address) : nullptr;
        all &= readable && addresses.receive_address != 0;
        if (all) outputs_[size_t(rank)] = plan_->direct_access->translate(rank, addresses.receive_address);
        if (access == DirectAccess::State::unknown && (addresses.send_address | addresses.receive_address) != 0)
            agreement_due_ |= Agreement::arenas_mapped;
        if (plan_->cma) {
            cma_inputs_[size_t(rank)] = addresses.own_send_address;
            cma_outputs_[size_t(rank)] = addresses.own_receive_address;
        }
    }
    const bool cma = !all && uses_cma();
    shares_buffers_ = all || cma;
    last_tile_ = shares_buffers_ ? 0 : plan_->tiles - 1;
    for (int rank = 0; rank < ranks_; ++rank) shares_buffers_ |= inputs_[size_t(rank)] != nullptr;
    if (shares_buffers_) {
        // Rule 9b: a rank that left before it saw our arrival flag has taken its buffers back, so check after the flag.
        // The fence orders our flag before the check; it pairs with the fence in Communicator::leave_buffers().
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (plan_->flag_block->aborted()) return abandon();
    }
    one_phase_ = stages_whole_ && !shares_buffers_;
    if (!all && !cma) return Progress::moved;
    // Direct: the message is one tile. Each rank reads its chunk from all inputs and writes it to all outputs.
    const size_t first = chunk_bound(plan_->bytes(), ranks_, rank_),
                 last = chunk_bound(plan_->bytes(), ranks_, rank_ + 1);
    if (cma) {
        if (const Progress progress = cma_own_chunk(); progress != Progress::moved) return progress;
    } else if (last > first) {
        for (int rank = 0; rank < ranks_; ++rank) {
            sources_[size_t(rank)] = inputs_[size_t(rank)] + first;
            destinations_[size_t(rank)] = outputs_[size_t(rank)] + first;
        }
        reduce(destinations_.data(), ranks_, sources_.data(), ranks_, last - first, true, ranks_);
    }
    post_departure(0);
    arm(no_tile, 0);
    state.stage = Stage::ended;
    return two_shot_direct(state);
}

// Reduces our chunk block by block: CMA copies the other ranks' contributions here, and the result into all outputs.
Progress Run::cma_own_chunk() {
    const size_t first = chunk_bound(plan_->bytes(), ranks_, rank_),
                 last = chunk_bound(plan_->bytes(), ranks_, rank_ + 1);
    const size_t block = plan_->cma_block_bytes();
    const auto failed = [this](Status status) {
        failure_ = std::move(status);
        return Progress::failed;
    };
    for (size_t offset = first; offset < last; offset += block) {
        // A rank that has left waits for us no longer, so at most one block arrives late.
        if (plan_->flag_block->aborted()) return abandon();
        const size_t bytes = std::min(block, last - offset);
        std::byte* copy = scratch_.data();
        for (int rank = 0; rank < ranks_; ++rank) {
            sources_[size_t(rank)] = rank == rank_ ? send_ + offset : copy;
            if (rank == rank_) continue;
            if (Status status = plan_->cma->read(rank, copy, cma_inputs_[size_t(rank)] + offset, bytes); !status)
                return failed(std::move(status));
            copy += block;
        }
        void* destination = receive_ + offset;
        reduce(&destination, 1, sources_.data(), ranks_, bytes, true, 0);
        for (int distance = 1; distance < ranks_; ++distance) {
            const int rank = (rank_ + distance) % ranks_;
            if (Status status = plan_->cma->write(rank, receive_ + offset, cma_outputs_[size_t(rank)] + offset, bytes);
                !status)
                return failed(std::move(status));
        }
    }
    return Progress::moved;
}

Progress Run::two_shot_direct(BlockState&) {
    const Progress progress = poll();
    if (progress != Progress::moved) return progress;
    return finish_two_shot(1);
}

// Data that was read after a buffer's owner had left is invalid (rule 9b).
Progress Run::finish_two_shot(uint64_t flag_tiles) {
    if (shares_buffers_) {
        std::atomic_thread_fence(std::memory_order_acquire);
        if (plan_->flag_block->aborted()) return abandon();
    }
    plan_->flag_block->tile = base_tile_ + uint32_t(flag_tiles);
    return Progress::done;
}

Progress Run::abandon() {
    failure_ = {error::rank_failed, "another rank ended the operation with an error"};
    return Progress::failed;
}

bool Run::may_be_using(int peer) const {
    const auto ahead = [&](const std::atomic<uint64_t>& word, uint64_t tile) {
        const uint64_t expected = flag_word(flag_tile(tile), plan_->operation_fingerprint);
        return int32_t(uint32_t(word.load(std::memory_order_acquire) >> 32) - uint32_t(expected >> 32));
    };
    // The first line may hold the arrival flag of a later tile. The last departure flag is not overwritten during this
    // operation, but an old one can be too old to compare by distance.
    return ahead(line(peer, 0).arrival, 0) >= 0 && ahead(line(peer, last_tile_).departure, last_tile_) != 0;
}

// Reduces our chunk of the tile into our output and our slot, and, in the same loop body, does the copies given.
void Run::reduce_own_chunk(uint64_t tile, const CopyJob* staging, int staging_count, const CopyJob* results,
                           int results_count) {
    const Range own = chunk_of(tile, rank_);
    const size_t tile_offset = tile * plan_->tile_bytes, offset = tile_offset + own.tile_offset;
    for (int rank = 0; rank < ranks_; ++rank) {
        const std::byte* input = inputs_[size_t(rank)];
        sources_[size_t(rank)] = rank == rank_ ? own_input(offset, own.bytes)
                                 : input       ? input + offset
                                               : slot(rank, tile) + own.tile_offset;
    }
    // Peers read the slot soon: unless that is slow only the output's stores go past the caches.
    void* destinations[] = {receive_ + offset, slot(rank_, tile) + own.tile_offset};
    const ReduceJob reduction = reduction_with_slot(flag_block_stores().beside_reads(own.bytes), destinations, 2,
                                                    sources_.data(), ranks_, own.bytes, true, 1);
    if (staging_count + results_count > 0)
        plan_->cpu_kernels->fused[plan_->type()][plan_->op()](staging, staging_count, reduction, results,
                                                              results_count);
    else if (own.bytes > 0)
        reduce(reduction);
}

Progress Run::two_shot(BlockState& state) {
    const Plan& plan = *plan_;
    for (;;) {
        switch (state.stage) {
            case Stage::begin:
                if (state.tile == 0)
                    post_addresses_and_arrival(0);
                else {
                    stage_input(state.tile);
                    post_arrival(state.tile);
                }
                arm(state.tile, no_tile);
                state.stage = Stage::arrivals;
                [[fallthrough]];
            case Stage::arrivals:
                if (const Progress progress = poll(); progress != Progress::moved) return progress;
                if (state.tile == 0)
                    if (const Progress progress = decide(state);
                        progress != Progress::moved || state.stage == Stage::ended)
                        return progress;
                if (one_phase_) {
                    reduce_whole(state.tile);
                    state.stage = Stage::begin;
                    if (++state.tile < plan.tiles) continue;
                    break;
                }
                if (plan.pipelined) {
                    state.stage = Stage::pipeline;
                    wait_arrival_ = wait_departure_ = no_tile;  // nothing to wait for before tile 0 is reduced
                    waiting_.clear();
                    continue;
                }
                reduce_own_chunk(state.tile, nullptr, 0, nullptr, 0);
                post_departure(state.tile);
                arm(no_tile, state.tile);
                state.stage = Stage::departures;
                [[fallthrough]];
            case Stage::departures:
                if (const Progress progress = poll(); progress != Progress::moved) return progress;
                copy_results(state.tile);
                state.stage = Stage::begin;
                if (++state.tile < plan.tiles) continue;
                break;
            case Stage::pipeline: {
                // The arrivals of this tile and the departures of the previous one are there: stage the next tile, reduce
                // this one, and copy the results of the previous one.
                if (const Progress progress = poll(); progress != Progress::moved) return progress;
                if (state.tile == plan.tiles) {
                    copy_results(state.tile - 1);
                    break;
                }
                const bool more = state.tile + 1 < plan.tiles;
                const int staged =
                    more ? staging_jobs(state.tile + 1,
                                        flag_block_stores().beside_reads(plan.tile_length(state.tile + 1)),
                                        staging_.data())
                         : 0;
                const int handed = state.tile > 0 ? result_jobs(state.tile - 1, results_.data()) : 0;
                reduce_own_chunk(state.tile, staging_.data(), staged, results_.data(), handed);
                if (more) post_arrival(state.tile + 1);
                post_departure(state.tile);
                arm(more ? state.tile + 1 : no_tile, state.tile);
                ++state.tile;
                continue;
            }
            case Stage::agreement:
                if (const Progress progress = poll(); progress != Progress::moved) return progress;
                {
                    uint32_t all = ~uint32_t(0);
                    for (int rank = 0; rank < ranks_; ++rank) {
                        BufferAddresses addresses;
                        memcpy(&addresses, line(rank, plan.tiles).payload, sizeof addresses);
                        all &= addresses.answer;
                    }
                    if (agreement_due_ & Agreement::arenas_mapped)
                        plan.direct_access->agree(all & Agreement::arenas_mapped);
                    if (agreement_due_ & Agreement::cma_probed) plan.cma->agree(all & Agreement::cma_probed);
                }
                plan.flag_block->tile = base_tile_ + uint32_t(plan.tiles) + 1;
                return Progress::done;
            case Stage::ended: return two_shot_direct(state);
        }
        // All tiles are through.
        if (!agreement_due_) return finish_two_shot(plan.tiles);
        BufferAddresses addresses{};
        if ((agreement_due_ & Agreement::arenas_mapped) && plan.direct_access->map_arenas())
            addresses.answer |= Agreement::arenas_mapped;
        if ((agreement_due_ & Agreement::cma_probed) && plan.cma->probe()) addresses.answer |= Agreement::cma_probed;
        memcpy(line(rank_, plan.tiles).payload, &addresses, sizeof addresses);
        post_arrival(plan.tiles);
        arm(plan.tiles, no_tile);
        state.stage = Stage::agreement;
    }
}

}  // namespace weft::internal
