// two_shot.hpp: two-shot all-reduce: each rank reduces its chunk, then copies the other chunks, with two waits per tile.
// Buffers that peers can reach are read and written in place. It also serves a one-shot whose buffers may be exported.
#pragma once
#include <span>

#include "src/executor/exported_buffers.hpp"
#include "src/executor/shared_memory_run.hpp"

namespace weft::internal {

class TwoShot final : public SharedMemoryRun {
  public:
    explicit TwoShot(const Plan& plan);
    void start(const void* send, void* receive, const void* operand, uint64_t sequence) override;
    Progress advance() override;
    bool may_be_using(int peer) const override { return exports_.may_be_using(peer); }

  private:
    // pipeline: one loop body stages, reduces and copies results of different tiles. in_place: all buffers are reachable.
    enum class Stage : uint8_t { post, arrivals, departures, pipeline, in_place, agreement };

    ChunkRange chunk_of(uint64_t tile, int chunk) const {
        return chunk_range(plan_->tile_length(tile), ranks_, chunk, 1);
    }
    // Copies of this rank's input into its slot, and of the other ranks' chunks of the result into its output.
    std::span<const CopyJob> staging_jobs(uint64_t tile, Stores stores);
    std::span<const CopyJob> result_jobs(uint64_t tile);
    void reduce_own_chunk(uint64_t tile, std::span<const CopyJob> staging, std::span<const CopyJob> results);
    Progress reduce_in_place(ExportedBuffers::Use use);
    Progress reduce_by_cma(size_t first, size_t last);

    ExportedBuffers exports_;
    Stage stage_ = Stage::post;
    bool stages_whole_;       // a one-shot
    bool one_phase_ = false;  // a one-shot that uses no exported buffer
    std::vector<void*> destinations_;
    std::vector<CopyJob> staging_, results_;
    std::vector<std::byte> cma_copies_;
};

}  // namespace weft::internal
