// flag_block.cpp: posting and awaiting the words of the flag block (docs/design/shared-memory-protocol.md).
#include "src/base/cpu.hpp"
#include "src/executor/run.hpp"

namespace weft::internal {

void Run::post_arrival(uint64_t tile) {
    const uint32_t number = flag_tile(tile);
    plan_->flag_block->line(rank_, number)
        .arrival.store(flag_word(number, plan_->operation_fingerprint),
                       std::memory_order_release);  // pairs with poll()
    plan_->flag_block->wake();
    // Other caches still hold the next line. Fetching it now hides that latency, which matters to a small operation.
    if (fits_inline_) prefetch_to_write(&plan_->flag_block->line(rank_, number + 1));
}

void Run::post_departure(uint64_t tile) {
    const uint32_t number = flag_tile(tile);
    plan_->flag_block->line(rank_, number)
        .departure.store(flag_word(number, plan_->operation_fingerprint),
                         std::memory_order_release);  // pairs with poll()
    plan_->flag_block->wake();
}

void Run::arm(uint64_t arrival_tile, uint64_t departure_tile) {
    wait_arrival_ = arrival_tile;
    wait_departure_ = departure_tile;
    waiting_.fill(ranks_, rank_);
}

// Polls all missing ranks, not one after the other: waiting for the set costs one task switch, not one per rank.
Progress Run::poll(RankSet& waiting, uint64_t arrival_tile, uint64_t departure_tile) {
    bool blocked = false;
    const auto look = [&](const std::atomic<uint64_t>& word, uint64_t tile, int place, int32_t furthest) {
        const uint64_t expected = flag_word(flag_tile(tile), plan_->operation_fingerprint);
        const uint64_t seen = word.load(std::memory_order_acquire);  // pairs with post_arrival(), post_departure()
        if (seen == expected) return true;
        // Zero: the line was never written. An older tile: not written yet. This tile or a later one: another operation's.
        // Tiles without a second phase post no departure flag, so an old departure flag may look like a later one. For
        // departures only this tile counts.
        const int32_t ahead = int32_t(uint32_t(seen >> 32) - uint32_t(expected >> 32));
        if (seen != 0 && ahead >= 0 && ahead <= furthest) suspect_ = plan_->schedule->shared_ranks[size_t(place)];
        return false;
    };
    waiting.for_each([&](int place) {
        const bool entered =
            arrival_tile == no_tile || look(line(place, arrival_tile).arrival, arrival_tile, place, INT32_MAX);
        if (entered &&
            (departure_tile == no_tile || look(line(place, departure_tile).departure, departure_tile, place, 0)))
            waiting.erase(place);
        else
            blocked = true;
    });
    if (suspect_ >= 0) [[unlikely]]
        return Progress::mismatch;
    return blocked ? Progress::blocked : Progress::moved;
}

}  // namespace weft::internal
