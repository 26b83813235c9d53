// exchange.hpp: messages between two ranks each: any number of sends and receives at a time, all of which go on side by
// side, so that their order does not matter but between the same two ranks, where the first send meets the first
// receive. advance() moves what can be moved and never blocks.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/base/rank_set.hpp"
#include "src/executor/plan.hpp"
#include "src/kernels/cpu_kernels.hpp"
#include "src/kernels/slot_stores.hpp"
#include "src/p2p/message_mark.hpp"
#include "src/peer_access/cma.hpp"
#include "src/segment/partner_wait.hpp"

namespace weft::internal {

enum class Progress : uint8_t;

// The connections with a peer, one each way; null until they are there.
struct PeerLink {
    Receiver* source = nullptr;
    Sender* target = nullptr;
    size_t slot_bytes = 0;
    bool remote = false;
    bool connected = false;      // both are there
    bool same_process = false;   // its memory is ours
    CanRead reads_us;            // what the peer can of what we lend it. Valid once connected
    std::byte* arena = nullptr;  // the peer's, as it is mapped here
};

// Thread-bound to the rank. Kept, so that a message allocates nothing.
class Exchange {
  public:
    // One step towards the link with a peer.
    using Connect = std::function<Status(int peer, PeerLink& link)>;
    // Messages from `streamed_least` bytes on are stored past the caches where they end.
    Exchange(Segment& group, int rank, const CpuKernels& cpu_kernels, size_t streamed_least, Connect connect);

    // The call that a message is of, and, of a collective, its number and its reduction: the two ends must agree.
    using Caller = MessageCaller;
    struct CallTag {
        Caller by;
        uint16_t number = 0;
        uint8_t reduction = 0;
    };
    // Buffers are the exchange's until advance() says done.
    void send(int peer, const void* data, uint64_t count, weftDataType_t type, const CallTag& purpose);
    void receive(int peer, void* data, uint64_t count, weftDataType_t type, const CallTag& purpose);

    // The same of one message alone, by an exchange that is idle, to or from a peer for whom so many bytes are a small
    // message on this host: it is done when these return. False: nothing has happened, for there is no room or no
    // message yet, or it is not as simple as that.
    bool is_simple(int peer, size_t bytes) const;
    bool send_at_once(int peer, const void* data, uint64_t count, weftDataType_t type, const CallTag& purpose);
    bool receive_at_once(int peer, void* data, uint64_t count, weftDataType_t type, const CallTag& purpose);

    bool idle() const { return busy_.empty(); }
    // moved, blocked, done or failed.
    Progress advance();
    const RankSet& missing() const { return missing_; }
    Status take_failure() { return std::move(failure_); }
    // Of a blocked exchange: whether what is missing comes by sockets, and those; and whether by connection info.
    bool networked() const { return networked_; }
    bool connecting() const { return connecting_; }
    void add_descriptors(std::vector<pollfd>& list) const;
    // What it waits for, one thing of all. Not idle.
    PartnerWait awaited() const;
    // What is missing from `peer`, for people: "has not called weftRecv for the 10 float that rank 1 sends by
    // weftSend".
    std::string owed_by(int peer) const;
    // After a failure: whether `peer` may still be copying from our buffers.
    bool may_be_read_by(int peer) const;
    void abandon();
    // After a failure, abandoned or not: which messages were not done, by their places among those given since the
    // exchange was idle; first, if one alone failed, that.
    std::vector<size_t> unfinished() const;

  private:
    static constexpr int none = -1;
    struct Transfer {
        std::byte* data;  // of a send only read
        uint64_t count;
        size_t bytes, done;
        uint32_t mark;
        int next;  // to or from the same peer, or none
        MessageView view() const { return {mark, count}; }
    };
    struct Queue {
        int first = none, last = none;
        int oldest = none;   // since the peer was idle
        uint16_t begun = 0;  // messages by themselves, ever
    };
    struct Peer {
        PeerLink link;
        SlotStores stores;
        Queue sends, receives;
        bool busy = false;
        bool pushing = false;            // the network's sender may have something left
        bool zero_copy_pending = false;  // it may be reading memory of ours
        // Where the sender of the message that is being received has it, if it told.
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
    // A piece of a message into a slot; and of one of `whole` bytes to where it ends.
    void copy_in(Peer& peer, void* slot, const void* from, size_t bytes) const;
    void copy_out(void* to, const void* from, size_t bytes, size_t whole) const;

    Segment* segment_;
    int rank_;
    const CpuKernels* cpu_kernels_;
    size_t streamed_least_;
    Connect connect_;
    Cma memory_;
    std::vector<Peer> peers_;          // by rank; empty before the first message
    std::vector<Transfer> transfers_;  // of the messages at a time
    std::vector<int> busy_;            // peers that have some
    std::vector<size_t> abandoned_;    // what was unfinished
    int differing_ = none;             // the message that failed, if it was one
    RankSet missing_;
    bool networked_ = false, connecting_ = false;
    Status failure_;
};

}  // namespace weft::internal
