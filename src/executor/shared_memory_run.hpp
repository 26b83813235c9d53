// shared_memory_run.hpp: the common part of one-shot and two-shot, all-reduces over the flag block of one host
// (docs/design/shared-memory-protocol.md). They do the steps of their expansions (src/schedule/expand.cpp) without one
// instruction per chunk. Tiles of a long message overlap.
#pragma once
#include <algorithm>

#include "src/executor/call_buffers.hpp"
#include "src/executor/flag_sync.hpp"
#include "src/executor/run.hpp"

namespace weft::internal {

// All ranks of the communicator share the flag block, so a rank's place is its number.
class SharedMemoryRun : public Run {
  protected:
    explicit SharedMemoryRun(const Plan& plan)
        : Run(plan),
          rank_(plan.schedule->rank),
          ranks_(plan.schedule->ranks),
          buffers_(plan),
          flags_(plan),
          sources_(size_t(std::max(ranks_, 2))) {}

    void begin_call(const void* send, void* receive, const void* operand, uint64_t sequence) {
        begin(sequence);
        buffers_.bind(send, receive, operand);
        flags_.begin();
        tile_ = 0;
    }
    size_t begin_of(uint64_t tile) const { return tile * plan_->tile_bytes; }
    // poll() waits for all other ranks: for the arrivals of one tile, the departures of another one, or both.
    void wait_for_all(uint64_t arrival_tile, uint64_t departure_tile = FlagSync::no_tile) {
        report_.missing.fill(ranks_, rank_);
        arrival_tile_ = arrival_tile;
        departure_tile_ = departure_tile;
    }
    Progress poll() { return flags_.poll(report_.missing, arrival_tile_, departure_tile_, report_); }
    // The staged inputs of all ranks become the output. They lie in payloads or in slots.
    void reduce_whole(uint64_t tile, bool in_payloads) {
        const size_t length = plan_->tile_length(tile);
        for (int rank = 0; rank < ranks_; ++rank)
            sources_[size_t(rank)] = in_payloads ? flags_.line(rank, tile).payload : flags_.slot(rank, tile);
        // The same data, and in our cache.
        if (!plan_->scaled()) sources_[size_t(rank_)] = buffers_.send() + begin_of(tile);
        if (length == 0) return;
        void* destination = buffers_.receive() + begin_of(tile);
        buffers_.reduce(buffers_.reduction(&destination, 1, sources_.data(), ranks_, length, true, 1));
    }
    // Executed tiles count as progress, even if the run is blocked then.
    static Progress moved_or(Progress progress, bool moved) {
        return moved && progress == Progress::blocked ? Progress::moved : progress;
    }

    int rank_, ranks_;
    CallBuffers buffers_;
    FlagSync flags_;
    std::vector<const void*> sources_;
    uint64_t tile_ = 0;
    uint64_t arrival_tile_ = 0, departure_tile_ = 0;  // of poll()
};

}  // namespace weft::internal
