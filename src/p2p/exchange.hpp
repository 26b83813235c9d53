// exchange.hpp: point-to-point messages. All sends and receives of a call progress concurrently. Messages between the
// same two ranks match in order. advance() moves as much data as it can and never blocks.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/base/rank_set.hpp"
#include "src/executor/plan.hpp"
#include "src/executor/progress.hpp"
#include "src/kernels/cpu_kernels.hpp"
#include "src/kernels/slot_stores.hpp"
#include "src/p2p/message_mark.hpp"
#include "src/peer_access/cma.hpp"
#include "src/segment/partner_wait.hpp"

namespace weft::internal {

// The connections with a peer, one each way; null until they are there.
struct PeerLink {
    Receiver* source = nullptr;
    Sender* target = nullptr;
    size_t slot_bytes = 0;
    bool remote = false;
    bool connected = false;      // both are there
    bool same_process = false;   // its memory is ours
    CanRead reads_us;            // how the peer reads zero-copy messages of ours. Valid once connected
    std::byte* arena = nullptr;  // the peer's arena, mapped here
};

// Owned by the communicator. Thread-bound to the rank. It is reused, so that a message allocates nothing.
class Exchange {
  public:
    // One step of connecting to a peer.
    using Connect = std::function<Status(int peer, PeerLink& link)>;
    // The receiver stores messages of at least `streamed_least` bytes past the caches.
    Exchange(Segment& group, int rank, const CpuKernels& cpu_kernels, size_t streamed_least, Connect connect);

    // The call that a message belongs to; of a collective also its number and its reduction. Both ends must agree.
    using Caller = MessageCaller;
    struct CallTag {
        Caller by;
        uint16_t number = 0;
        uint8_t reduction = 0;
    };
    // Buffers must stay valid until advance() returns done.
    void send(int peer, const void* data, uint64_t count, weftDataType_t type, const CallTag& purpose);
    void receive(int peer, void* data, uint64_t count, weftDataType_t type, const CallTag& purpose);

    // For an idle exchange and a single message for which is_simple() holds: the message is complete on return.
    // False: nothing has happened, because there is no free slot or no message yet, or the message is not simple.
    bool is_simple(int peer, size_t bytes) const;
    bool send_at_once(int peer, const void* data, uint64_t count, weftDataType_t type, const CallTag& purpose);
    bool receive_at_once(int peer, void* data, uint64_t count, weftDataType_t type, const CallTag& purpose);

    bool idle() const { return busy_.empty(); }
    // moved, blocked, done or failed.
    Progress advance();
    const RankSet& missing() const { return missing_; }
    Status take_failure() { return std::move(failure_); }
    // Of a blocked exchange: whether missing messages come over sockets, whether it waits for connection info, and the
    // sockets.
    bool networked() const { return networked_; }
    bool connecting() const { return connecting_; }
    void add_descriptors(std::vector<pollfd>& list) const;
    // One of the events that the exchange waits for. The exchange must not be idle.
    PartnerWait awaited() const;
    // Describes the call that `peer` has not made: "has not called weftRecv for the 10 float that rank 1 sends by
    // weftSend".
    std::string owed_by(int peer) const;
    // After a failure: whether `peer` may still be copying from our buffers.
    bool may_be_read_by(int peer) const;
    void abandon();
    // After a failure, abandoned or not: the messages that are not complete, by their index since the exchange was
    // idle. If a single message failed, its index comes first.
    std::vector<size_t> unfinished() const;

  private:
    static constexpr int none = -1;
    struct Transfer {
        std::byte* data;  // a send only reads it
        uint64_t count;
        size_t bytes, done;
        uint32_t mark;
        int next;  // of the same peer and direction, or none
        MessageView view() const { return {mark, count}; }
    };
    struct Queue {
        int first = none, last = none;
        int oldest = none;   // since the peer was idle
        uint16_t begun = 0;  // messages outside collectives, in the whole life of the exchange
    };
    struct Peer {
        PeerLink link;
        SlotStores stores;
        Queue sends, receives;
        bool busy = false;
        bool pushing = false;            // the network sender may have unsent data
        bool zero_copy_pending = false;  // the peer may be reading our memory
        // The sender's address of the zero-copy message that is being received, or 0.
        uint64_t pulled_from = 0;
    };
    static uint16_t number_of(const CallTag& purpose, const Queue& queue) {
        return of_collective(purpose.by) ? purpose.number : uint16_t(queue.begun + 1);
    }
    void add(int peer, bool outgoing, void* data, uint64_t count, weftDataType_t type, const CallTag& purpose);
    Transfer& front(const Queue& queue) { return transfers_[size_t(queue.first)]; }
    const Transfer& front(const Queue& queue) const { return transfers_[size_t(queue.first)]; }
    void pop(Queue& queue);
    Progress advance(int rank);
    Progress send_some(Peer& peer);
    Progress receive_some(int rank, Peer& peer);
    Progress receive_remote(int rank, Peer& peer);
    Progress pull(int rank, Peer& peer);
    Progress move_own(Peer& self);
    static bool ended(Peer& peer);
    Progress differs(int rank, const Transfer& transfer, const SlotInfo& came);
    Progress fails(Status failure);
    // Copies a piece of a message into a slot, or a piece of a message of `whole` bytes into the user's buffer.
    void copy_in(Peer& peer, void* slot, const void* from, size_t bytes) const;
    void copy_out(void* to, const void* from, size_t bytes, size_t whole) const;

    Segment* segment_;
    int rank_;
    const CpuKernels* cpu_kernels_;
    size_t streamed_least_;
    Connect connect_;
    Cma memory_;
    std::vector<Peer> peers_;          // by rank; empty before the first message
    std::vector<Transfer> transfers_;  // all messages since the exchange was idle
    std::vector<int> busy_;            // peers with messages
    std::vector<size_t> abandoned_;    // the incomplete messages when abandon() was called
    int differing_ = none;             // the message that failed, if a single one did
    RankSet missing_;
    bool networked_ = false, connecting_ = false;
    Status failure_;
};

}  // namespace weft::internal
