// transfers.hpp: the messages of an exchange, queued by peer and direction. Values.
#pragma once
#include <vector>

#include "src/executor/plan.hpp"
#include "src/kernels/slot_stores.hpp"
#include "src/p2p/message_mark.hpp"

namespace weft::internal {

// The connections with a peer, one each way; null until they are there.
struct PeerLink {
    Receiver* source = nullptr;
    Sender* target = nullptr;
    size_t slot_bytes = 0;
    bool remote = false;
    bool connected = false;     // both are there
    bool same_process = false;  // its memory is ours
    // Where the network's ends find the memory of messages that they move without a copy; null: they do not.
    const UserMemory* user_memory = nullptr;
    uint64_t offers = 0;         // messages ahead for which the network receiver is offered the user's memory
    CanRead reads_us;            // how the peer reads zero-copy messages of ours. Valid once connected
    std::byte* arena = nullptr;  // the peer's arena, mapped here
};

struct Transfer {
    std::byte* data;  // a send only reads it
    uint64_t count;
    size_t bytes, done;
    uint32_t mark;
    int next;  // of the same peer and direction, or none
    MessageView view() const { return {mark, count}; }
};

// Owned by an Exchange. Thread-bound to the rank. It keeps its memory, so that a message allocates nothing.
class Transfers {
  public:
    static constexpr int none = -1;
    struct Queue {
        int first = none, last = none;
        int oldest = none;   // since the peer was idle
        uint16_t begun = 0;  // messages outside collectives, in the whole life of the exchange
        bool empty() const { return first == none; }
    };

    void add(Queue& queue, const Transfer& transfer) {
        const int index = int(all_.size());
        all_.push_back(transfer);
        if (queue.empty())
            queue.first = index;
        else
            all_[size_t(queue.last)].next = index;
        queue.last = index;
        if (queue.oldest == none) queue.oldest = index;
    }
    const Transfer& at(int index) const { return all_[size_t(index)]; }
    Transfer& front(const Queue& queue) { return all_[size_t(queue.first)]; }
    const Transfer& front(const Queue& queue) const { return all_[size_t(queue.first)]; }
    void pop(Queue& queue) {
        queue.first = front(queue).next;
        if (queue.empty()) queue.last = none;
    }
    int index_of(const Transfer& transfer) const { return int(&transfer - all_.data()); }
    // Appends the indices from `first` to the end of its queue.
    void append(int first, std::vector<size_t>& indices) const {
        for (int index = first; index != none; index = all_[size_t(index)].next) indices.push_back(size_t(index));
    }
    void clear() { all_.clear(); }

  private:
    std::vector<Transfer> all_;
};

// The piece of a received transfer for which the user's memory is offered next.
struct OfferedPiece {
    int transfer = Transfers::none;
    size_t done = 0;       // bytes of the transfer before it
    uint64_t message = 0;  // the network message that brings it
    bool ended = false;    // the transfer has no more pieces
};

// A peer and the messages to and from it.
struct TransferPeer {
    PeerLink link;
    SlotStores stores;
    Transfers::Queue sends, receives;
    bool busy = false;
    bool pushing = false;            // the network sender may have unsent data
    bool zero_copy_pending = false;  // the peer may be reading our memory
    // The sender's address of the zero-copy message that is being received, or 0.
    uint64_t pulled_from = 0;
    OfferedPiece next_offer;  // while the peer is busy
};

}  // namespace weft::internal
