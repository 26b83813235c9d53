// signals.hpp: signal counters, and the word that names the rank whose memory this rank accesses (docs/design/rma.md).
// Counters for ranks of the same host lie in the sender's heap, so each counter has one writer. The receiver counts the
// signals that arrive from other hosts.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "src/segment/segment.hpp"

namespace weft::internal {

// Describes missing signals: "has sent 1 of the 3 signals with index 0 and context 0 that rank 2 waits for".
std::string owed_signals(int rank, int number, uint64_t came, uint64_t wanted);

// Owned by OneSided. Thread-bound to the rank.
class Signals {
  public:
    static constexpr int count = WEFT_SIGNALS * WEFT_SIGNAL_CONTEXTS;  // from one rank to another
    static constexpr int number_of(int index, int context) { return context * WEFT_SIGNALS + index; }

    Signals(Segment& group, int rank)
        : segment_(&group), rank_(rank), own_(size_t(group.ranks())), seen_(size_t(group.ranks())) {}

    // Allocates this rank's counters in its heap, once.
    Status make(size_t& heap_used);
    // The place of the counters in this rank's heap, which the other ranks need; found() records theirs.
    uint64_t place() const { return place_; }
    void found(int peer, uint64_t place);

    // Signals a rank of this host. The release pairs with pending(): a rank that sees the signal sees earlier writes.
    void raise(int peer, int number) {
        const uint64_t raised = ++of(own_, peer)[size_t(number)];
        raised_for(rank_, place_, peer)[number].store(raised, std::memory_order_release);
        segment_->wake();
    }
    // A signal has arrived by message.
    void came(int peer, int number) { ++of(seen_, peer).came[size_t(number)]; }
    // Signals from `peer` that no wait has consumed yet.
    uint64_t pending(int peer, int number) {
        const Seen& seen = of(seen_, peer);
        const uint64_t raised = seen.raised ? seen.raised[number].load(std::memory_order_acquire) : 0;  // raise()
        return raised + seen.came[size_t(number)] - seen.taken[size_t(number)];
    }
    void take(int peer, int number, uint64_t signals) { of(seen_, peer).taken[size_t(number)] += signals; }

    // Announces that this rank will access memory of a rank of this host. False: it must not, because the communicator
    // was aborted or that rank has left.
    bool enter(int peer);
    void leave() {
        segment_->row(rank_).window.touching.store(0, std::memory_order_release);
    }  // pairs with touched_by()
    // Whether `peer` accesses our memory. The caller must have set the abort word or its state, then fenced.
    bool touched_by(int peer) const {
        return segment_->row(peer).window.touching.load(std::memory_order_acquire) == rank_ + 1;
    }

  private:
    using Counters = std::array<uint64_t, count>;
    struct Seen {
        Counters came{}, taken{};
        const std::atomic<uint64_t>* raised = nullptr;  // counters for us in the peer's heap; null: another host
    };
    template <class Of>
    static Of& of(std::vector<std::unique_ptr<Of>>& all, int peer) {
        std::unique_ptr<Of>& one = all[size_t(peer)];
        if (!one) [[unlikely]]
            one = std::make_unique<Of>();
        return *one;
    }
    // The counters in the heap of rank `by` for rank `peer`.
    std::atomic<uint64_t>* raised_for(int by, uint64_t place, int peer) const {
        return reinterpret_cast<std::atomic<uint64_t>*>(segment_->heaps().at(segment_->place(by)) + place) +
               size_t(segment_->place(peer)) * count;
    }

    Segment* segment_;
    int rank_;
    uint64_t place_ = 0;
    std::vector<std::unique_ptr<Counters>> own_;  // signals sent, by peer
    std::vector<std::unique_ptr<Seen>> seen_;     // by peer
};

}  // namespace weft::internal
