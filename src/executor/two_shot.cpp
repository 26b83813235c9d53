#include "src/executor/two_shot.hpp"

#include <atomic>
#include <cstring>

namespace weft::internal {

// The bytes of all ranks' buffers that a rank reduces between two looks at the abort flag: a failed peer waits for it.
static constexpr size_t in_place_bytes = size_t(1) << 20, in_place_least = 4096;

TwoShot::TwoShot(const Plan& plan)
    : SharedMemoryRun(plan),
      exports_(plan, flags_),
      stages_whole_(is_one_shot(*plan.schedule)),
      destinations_(size_t(std::max(ranks_, 2))),
      staging_(2),
      results_(size_t(ranks_)),
      cma_copies_(plan.two_shot.cma ? plan.cma_block_bytes() * size_t(ranks_ - 1) : 0) {}

void TwoShot::start(const void* send, void* receive, const void* operand, uint64_t sequence) {
    begin_call(send, receive, operand, sequence);
    exports_.begin();
    stage_ = Stage::post;
}

Progress TwoShot::advance() try {
    for (bool moved = false;; moved = true) {
        if (stage_ == Stage::post) {
            BufferAddresses own;
            if (tile_ == 0) own = exports_.export_own(buffers_);
            for (const CopyJob& job : staging_jobs(tile_, Stores::ordinary))  // copy_input() chooses the stores
                buffers_.copy_input(static_cast<std::byte*>(job.destination),
                                    size_t(static_cast<const std::byte*>(job.source) - buffers_.send()), job.bytes,
                                    &flags_.stores());
            if (tile_ == 0) memcpy(flags_.line(rank_, 0).payload, &own, sizeof own);
            flags_.post_arrival(tile_);
            wait_for_all(tile_);
            stage_ = Stage::arrivals;
            moved = true;
        }
        if (const Progress progress = poll(); progress != Progress::moved) return moved_or(progress, moved);
        switch (stage_) {
            case Stage::post:
            case Stage::arrivals:
                if (tile_ == 0) {
                    const ExportedBuffers::Use use = exports_.decide();
                    if (use == ExportedBuffers::Use::aborted) return report_.abandons();
                    one_phase_ = stages_whole_ && use == ExportedBuffers::Use::none;
                    if (use == ExportedBuffers::Use::direct || use == ExportedBuffers::Use::cma) {
                        if (const Progress progress = reduce_in_place(use); progress != Progress::moved)
                            return progress;
                        flags_.post_departure(0);
                        wait_for_all(FlagSync::no_tile, 0);
                        stage_ = Stage::in_place;
                        continue;
                    }
                }
                if (one_phase_) {
                    reduce_whole(tile_, false);
                    stage_ = Stage::post;
                    if (++tile_ < plan_->tiles) continue;
                    break;
                }
                if (plan_->two_shot.pipelined) {
                    stage_ = Stage::pipeline;  // nothing to wait for before tile 0 is reduced
                    continue;
                }
                reduce_own_chunk(tile_, {}, {});
                flags_.post_departure(tile_);
                wait_for_all(FlagSync::no_tile, tile_);
                stage_ = Stage::departures;
                continue;
            case Stage::departures:
                for (const CopyJob& job : result_jobs(tile_)) plan_->cpu_kernels->copy(job);
                stage_ = Stage::post;
                if (++tile_ < plan_->tiles) continue;
                break;
            case Stage::pipeline: {
                if (tile_ == plan_->tiles) {
                    for (const CopyJob& job : result_jobs(tile_ - 1)) plan_->cpu_kernels->copy(job);
                    break;
                }
                const bool more = tile_ + 1 < plan_->tiles;
                std::span<const CopyJob> staging, results;
                if (more)
                    staging = staging_jobs(tile_ + 1, flags_.stores().beside_reads(plan_->tile_length(tile_ + 1)));
                if (tile_ > 0) results = result_jobs(tile_ - 1);
                reduce_own_chunk(tile_, staging, results);
                if (more) flags_.post_arrival(tile_ + 1);
                flags_.post_departure(tile_);
                // The next loop body reduces the next tile and copies the results of this one.
                wait_for_all(more ? tile_ + 1 : FlagSync::no_tile, tile_);
                ++tile_;
                continue;
            }
            case Stage::in_place: break;
            case Stage::agreement:
                exports_.agree(plan_->tiles);
                flags_.end(plan_->tiles + 1);
                return Progress::done;
        }
        // All tiles are complete.
        if (exports_.agreement_due() && stage_ != Stage::in_place) {
            const BufferAddresses answer = exports_.answer();
            memcpy(flags_.line(rank_, plan_->tiles).payload, &answer, sizeof answer);
            flags_.post_arrival(plan_->tiles);
            wait_for_all(plan_->tiles);
            stage_ = Stage::agreement;
            continue;
        }
        if (exports_.shared()) {
            // Data that was read after a buffer's owner had left is invalid (rule 9b).
            std::atomic_thread_fence(std::memory_order_acquire);
            if (plan_->flags.block->aborted()) return report_.abandons();
        }
        flags_.end(stage_ == Stage::in_place ? 1 : plan_->tiles);
        return Progress::done;
    }
} catch (const UserReductionFailed& failed) {
    return report_.fails(failed.status(rank_, sequence_, plan_->operation));
}

// The chunks of other ranks, before and behind our own chunk. A one-shot stages everything.
std::span<const CopyJob> TwoShot::staging_jobs(uint64_t tile, Stores stores) {
    if (exports_.exports_input()) return {};
    const size_t length = plan_->tile_length(tile);
    const ChunkRange own = stages_whole_ ? ChunkRange{0, 0} : chunk_of(tile, rank_);
    const size_t behind = own.tile_offset + own.bytes;
    const std::byte* input = buffers_.send() + begin_of(tile);
    std::byte* staged = flags_.slot(rank_, tile);
    size_t count = 0;
    if (own.tile_offset > 0) staging_[count++] = {staged, input, own.tile_offset, stores};
    if (behind < length) staging_[count++] = {staged + behind, input + behind, length - behind, stores};
    return {staging_.data(), count};
}

std::span<const CopyJob> TwoShot::result_jobs(uint64_t tile) {
    size_t count = 0;
    for (int distance = 1; distance < ranks_; ++distance) {  // ranks begin at different peers
        const int rank = rank_ + distance < ranks_ ? rank_ + distance : rank_ + distance - ranks_;
        const ChunkRange range = chunk_of(tile, rank);
        if (range.bytes == 0) continue;
        results_[count++] = {buffers_.receive() + begin_of(tile) + range.tile_offset,
                             flags_.slot(rank, tile) + range.tile_offset, range.bytes, plan_->stores};
    }
    return {results_.data(), count};
}

// Reduces our chunk of the tile into our output and our slot. The same loop body does the copies.
void TwoShot::reduce_own_chunk(uint64_t tile, std::span<const CopyJob> staging, std::span<const CopyJob> results) {
    const ChunkRange own = chunk_of(tile, rank_);
    const size_t offset = begin_of(tile) + own.tile_offset;
    for (int rank = 0; rank < ranks_; ++rank) {
        const std::byte* input = exports_.input(rank);
        sources_[size_t(rank)] = rank == rank_ ? buffers_.own_input(offset, own.bytes)
                                 : input       ? input + offset
                                               : flags_.slot(rank, tile) + own.tile_offset;
    }
    // Peers read the slot soon: unless that is slow only the output's stores go past the caches.
    void* destinations[] = {buffers_.receive() + offset, flags_.slot(rank_, tile) + own.tile_offset};
    const ReduceJob job = buffers_.reduction(destinations, 2, sources_.data(), ranks_, own.bytes, true, 1, -1,
                                             flags_.stores().beside_reads(own.bytes));
    if (staging.size() + results.size() > 0)
        plan_->cpu_kernels->fused[plan_->type()][plan_->op()](staging.data(), int(staging.size()), job, results.data(),
                                                              int(results.size()));
    else if (own.bytes > 0)
        buffers_.reduce(job);
}

Progress TwoShot::reduce_in_place(ExportedBuffers::Use use) {
    const size_t first = chunk_bound(plan_->bytes(), ranks_, rank_),
                 last = chunk_bound(plan_->bytes(), ranks_, rank_ + 1);
    if (use == ExportedBuffers::Use::cma) return reduce_by_cma(first, last);
    const size_t piece = std::max(in_place_bytes / size_t(ranks_) / in_place_least, size_t(1)) * in_place_least;
    for (size_t offset = first; offset < last; offset += piece) {
        if (plan_->flags.block->aborted()) return report_.abandons();
        for (int rank = 0; rank < ranks_; ++rank) {
            sources_[size_t(rank)] = exports_.input(rank) + offset;
            destinations_[size_t(rank)] = exports_.output(rank) + offset;
        }
        buffers_.reduce(buffers_.reduction(destinations_.data(), ranks_, sources_.data(), ranks_,
                                           std::min(piece, last - offset), true, ranks_));
    }
    return Progress::moved;
}

// Block by block: CMA copies the other ranks' contributions here, and the result into all outputs.
Progress TwoShot::reduce_by_cma(size_t first, size_t last) {
    const size_t block = plan_->cma_block_bytes();
    for (size_t offset = first; offset < last; offset += block) {
        // A rank that has left waits for us no longer, so at most one block arrives late.
        if (plan_->flags.block->aborted()) return report_.abandons();
        const size_t bytes = std::min(block, last - offset);
        std::byte* copy = cma_copies_.data();
        for (int rank = 0; rank < ranks_; ++rank) {
            sources_[size_t(rank)] = rank == rank_ ? buffers_.send() + offset : copy;
            if (rank == rank_) continue;
            if (Status status = plan_->two_shot.cma->read(rank, copy, exports_.cma_input(rank) + offset, bytes);
                !status)
                return report_.fails(std::move(status));
            copy += block;
        }
        void* destination = buffers_.receive() + offset;
        buffers_.reduce(buffers_.reduction(&destination, 1, sources_.data(), ranks_, bytes, true, 0));
        for (int distance = 1; distance < ranks_; ++distance) {
            const int rank = (rank_ + distance) % ranks_;
            if (Status status =
                    plan_->two_shot.cma->write(rank, destination, exports_.cma_output(rank) + offset, bytes);
                !status)
                return report_.fails(std::move(status));
        }
    }
    return Progress::moved;
}

}  // namespace weft::internal
