// signals.hpp: counters by which one rank tells another that something is done, and the word that says whose memory a
// rank is at (docs/design/rma.md). What a rank raises for ranks of its host lies in its own heap, so every
// counter has one writer; what comes from other hosts the rank counts itself. Thread-bound to the rank.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "src/segment/segment.hpp"

namespace weft::internal {

// What a rank has sent too few of: "has sent 1 of the 3 signals with index 0 and context 0 that rank 2 waits for".
std::string owed_signals(int rank, int number, uint64_t came, uint64_t wanted);

class Signals {
  public:
    static constexpr int count = WEFT_SIGNALS * WEFT_SIGNAL_CONTEXTS;  // from one rank to another
    static constexpr int number_of(int index, int context) { return context * WEFT_SIGNALS + index; }

    Signals(Segment& group, int rank)
        : segment_(&group), rank_(rank), own_(size_t(group.ranks())), seen_(size_t(group.ranks())) {}

    // Takes this rank's part of the segment, once.
    Status make(size_t& heap_used);
    // Where that is in the rank's heap, for the others to be told; and where theirs are.
    uint64_t place() const { return place_; }
    void found(int peer, uint64_t place);

    // Tells a rank of this host. Pairs with pending(): what was written before is seen by who has seen it.
    void raise(int peer, int number) {
        const uint64_t raised = ++of(own_, peer)[size_t(number)];
        raised_for(rank_, place_, peer)[number].store(raised, std::memory_order_release);
        segment_->wake();
    }
    // A message has brought one.
    void came(int peer, int number) { ++of(seen_, peer).came[size_t(number)]; }
    // From `peer`, not waited for yet.
    uint64_t pending(int peer, int number) {
        const Seen& seen = of(seen_, peer);
        const uint64_t raised = seen.raised ? seen.raised[number].load(std::memory_order_acquire) : 0;  // raise()
        return raised + seen.came[size_t(number)] - seen.taken[size_t(number)];
    }
    void take(int peer, int number, uint64_t signals) { of(seen_, peer).taken[size_t(number)] += signals; }

    // Says that this rank is going to read or write memory of a rank of this host. False: it may not, for somebody has
    // aborted, or that rank has left.
    bool enter(int peer);
    void leave() { segment_->row(rank_).touching.store(0, std::memory_order_release); }  // pairs with touched_by()
    // Whether `peer` is at our memory; after a fence behind the abort word or our state, which it looks at.
    bool touched_by(int peer) const {
        return segment_->row(peer).touching.load(std::memory_order_acquire) == rank_ + 1;
    }

  private:
    using Counters = std::array<uint64_t, count>;
    struct Seen {
        Counters came{}, taken{};
        const std::atomic<uint64_t>* raised = nullptr;  // for us, of ranks of this host
    };
    template <class Of>
    static Of& of(std::vector<std::unique_ptr<Of>>& all, int peer) {
        std::unique_ptr<Of>& one = all[size_t(peer)];
        if (!one) [[unlikely]]
            one = std::make_unique<Of>();
        return *one;
    }
    // In a rank's heap: the counters for each rank of this host.
    std::atomic<uint64_t>* raised_for(int by, uint64_t place, int peer) const {
        return reinterpret_cast<std::atomic<uint64_t>*>(segment_->heap(by) + place) +
               size_t(segment_->place(peer)) * count;
    }

    Segment* segment_;
    int rank_;
    uint64_t place_ = 0;
    std::vector<std::unique_ptr<Counters>> own_;  // what we have raised, by peer
    std::vector<std::unique_ptr<Seen>> seen_;     // by peer
};

}  // namespace weft::internal
