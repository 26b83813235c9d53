// flag_sync.hpp: posts and polls the flags of one operation on the flag block (docs/design/shared-memory-protocol.md).
#pragma once
#include "src/executor/plan.hpp"
#include "src/executor/progress.hpp"

namespace weft::internal {

// Owned by a Run. Thread-bound to the rank. A place is the index of a rank among the schedule's shared ranks.
class FlagSync {
  public:
    static constexpr uint64_t no_tile = ~uint64_t(0);

    explicit FlagSync(const Plan& plan);
    // `tile` counts from here.
    void begin() {
        if (plan_->flags.block) base_tile_ = plan_->flags.block->tile;
    }
    // The next operation's tiles follow this one's.
    void end(uint64_t tiles) { plan_->flags.block->tile = base_tile_ + uint32_t(tiles); }

    void post_arrival(uint64_t tile);
    void post_departure(uint64_t tile);
    // Waits for the arrivals of one tile, the departures of another one, or both. Erases from `waiting` the places whose
    // flags are set. moved: all are set.
    Progress poll(RankSet& waiting, uint64_t arrival_tile, uint64_t departure_tile, RunReport& report);
    // Whether a peer has posted the arrival of tile 0, but not the departure of `last_tile`.
    bool inside(int peer, uint64_t last_tile) const;

    int place() const { return place_; }
    int places() const { return int(plan_->schedule->shared_ranks.size()); }
    int rank_at(int place) const { return ranks_[place]; }
    int place_of(int rank) const;
    FlagLine& line(int place, uint64_t tile) const { return plan_->flags.block->line(ranks_[place], flag_tile(tile)); }
    // A payload serves as the slot if the whole fits into it: it arrives in the same cache line as the flag.
    bool slots_in_payload() const { return slots_in_payload_; }
    std::byte* slot(int place, uint64_t tile) const {
        return slots_in_payload_ ? line(place, tile).payload
                                 : plan_->flags.block->slot(ranks_[place], flag_tile(tile), plan_->flags.rotation);
    }
    SlotStores& stores() const { return plan_->slot_stores[plan_->schedule->rank]; }

  private:
    uint32_t flag_tile(uint64_t tile) const { return base_tile_ + uint32_t(tile); }

    const Plan* plan_;
    const int32_t* ranks_;  // by place
    int place_ = 0;         // of this rank
    bool fits_inline_;      // a line's payload can hold the whole
    bool slots_in_payload_;
    uint32_t base_tile_ = 0;
};

}  // namespace weft::internal
