#include "src/executor/flag_sync.hpp"

#include <algorithm>

#include "src/base/cpu.hpp"

namespace weft::internal {

FlagSync::FlagSync(const Plan& plan)
    : plan_(&plan),
      ranks_(plan.schedule->shared_ranks.data()),
      fits_inline_(shared_slot_bytes(*plan.schedule, plan.bytes()) <= inline_bytes),
      // The payloads of an all-reduce hold buffer addresses, and its fused form stages inline itself.
      slots_in_payload_(fits_inline_ && plan.schedule->collective != Collective::all_reduce) {
    if (places() > 0) place_ = place_of(plan.schedule->rank);
}

int FlagSync::place_of(int rank) const {
    const std::vector<int32_t>& ranks = plan_->schedule->shared_ranks;
    return int(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

void FlagSync::post_arrival(uint64_t tile) {
    FlagBlock& flags = *plan_->flags.block;
    const uint32_t number = flag_tile(tile);
    const int rank = plan_->schedule->rank;
    flags.line(rank, number)
        .arrival.store(flag_word(number, plan_->operation_fingerprint),
                       std::memory_order_release);  // pairs with poll()
    flags.wake();
    // Other caches still hold the next line. Fetching it now hides that latency, which matters to a small operation.
    if (fits_inline_) prefetch_to_write(&flags.line(rank, number + 1));
}

void FlagSync::post_departure(uint64_t tile) {
    FlagBlock& flags = *plan_->flags.block;
    const uint32_t number = flag_tile(tile);
    flags.line(plan_->schedule->rank, number)
        .departure.store(flag_word(number, plan_->operation_fingerprint),
                         std::memory_order_release);  // pairs with poll()
    flags.wake();
}

// Polls all missing ranks, not one after the other: waiting for the set costs one task switch, not one per rank.
Progress FlagSync::poll(RankSet& waiting, uint64_t arrival_tile, uint64_t departure_tile, RunReport& report) {
    bool blocked = false;
    const auto look = [&](const std::atomic<uint64_t>& word, uint64_t tile, int place, int32_t furthest) {
        const uint64_t expected = flag_word(flag_tile(tile), plan_->operation_fingerprint);
        const uint64_t seen = word.load(std::memory_order_acquire);  // pairs with post_arrival(), post_departure()
        if (seen == expected) return true;
        // Zero: the line was never written. An older tile: not written yet. This tile or a later one: another operation's.
        // Tiles without a second phase post no departure flag, so an old departure flag may look like a later one. For
        // departures only this tile counts.
        const int32_t ahead = int32_t(uint32_t(seen >> 32) - uint32_t(expected >> 32));
        if (seen != 0 && ahead >= 0 && ahead <= furthest) report.suspect = ranks_[place];
        return false;
    };
    waiting.for_each([&](int place) {
        const bool arrived =
            arrival_tile == no_tile || look(line(place, arrival_tile).arrival, arrival_tile, place, INT32_MAX);
        if (arrived &&
            (departure_tile == no_tile || look(line(place, departure_tile).departure, departure_tile, place, 0)))
            waiting.erase(place);
        else
            blocked = true;
    });
    if (report.suspect >= 0) [[unlikely]]
        return Progress::mismatch;
    return blocked ? Progress::blocked : Progress::moved;
}

bool FlagSync::inside(int peer, uint64_t last_tile) const {
    const auto ahead = [&](const std::atomic<uint64_t>& word, uint64_t tile) {
        const uint64_t expected = flag_word(flag_tile(tile), plan_->operation_fingerprint);
        return int32_t(uint32_t(word.load(std::memory_order_acquire) >> 32) - uint32_t(expected >> 32));
    };
    // The first line may hold the arrival flag of a later tile. The last departure flag is not overwritten during this
    // operation, but an old one can be too old to compare by distance.
    return ahead(line(peer, 0).arrival, 0) >= 0 && ahead(line(peer, last_tile).departure, last_tile) != 0;
}

}  // namespace weft::internal
