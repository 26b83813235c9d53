// exchange.hpp: point-to-point messages. All sends and receives of a call progress concurrently. Messages between the
// same two ranks match in order. advance() moves as much data as it can and never blocks.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/base/rank_set.hpp"
#include "src/base/wakeups.hpp"
#include "src/executor/progress.hpp"
#include "src/p2p/transfer_engine.hpp"
#include "src/segment/partner_wait.hpp"

namespace weft::internal {

// Owned by the communicator. Thread-bound to the rank. It is reused, so that a message allocates nothing.
class Exchange {
  public:
    // One step of connecting to a peer.
    using Connect = std::function<Status(int peer, PeerLink& link)>;
    // The receiver stores messages of at least `streamed_least` bytes past the caches.
    Exchange(Segment& group, int rank, const CpuKernels& cpu_kernels, size_t streamed_least, Connect connect);
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;

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
    Status take_failure() { return engine_.take_failure(); }
    // Of a blocked exchange: whether missing messages come over sockets, whether it waits for connection info, and the
    // sockets.
    bool networked() const { return networked_; }
    bool connecting() const { return connecting_; }
    void add_wakeups(Wakeups& wakeups) const;
    // One of the events that the exchange waits for. The exchange must not be idle.
    PartnerWait awaited() const;
    // Describes the call that `peer` has not made: "has not called weftRecv for the 10 float that rank 1 sends by
    // weftSend".
    std::string owed_by(int peer) const;
    // After a failure: whether `peer` may still be copying from our buffers.
    bool may_be_read_by(int peer) const;
    void abandon();
    // After a failure, abandoned or not: afterwards no network writes to buffers that were given to receive().
    void withdraw();
    // After a failure, abandoned or not: the messages that are not complete, by their index since the exchange was
    // idle. If a single message failed, its index comes first.
    std::vector<size_t> unfinished() const;

  private:
    static constexpr int none = Transfers::none;
    using Queue = Transfers::Queue;
    using Peer = TransferPeer;
    static uint16_t number_of(const CallTag& purpose, const Queue& queue) {
        return of_collective(purpose.by) ? purpose.number : uint16_t(queue.begun + 1);
    }
    void add(int peer, bool outgoing, void* data, uint64_t count, weftDataType_t type, const CallTag& purpose);
    Progress advance(int rank);
    static bool ended(Peer& peer);

    Segment* segment_;
    int rank_;
    Connect connect_;
    std::vector<Peer> peers_;        // by rank; empty before the first message
    Transfers transfers_;            // all messages since the exchange was idle
    TransferEngine engine_;          // moves them
    std::vector<int> busy_;          // peers with messages
    std::vector<size_t> abandoned_;  // the incomplete messages when abandon() was called
    RankSet missing_;
    bool networked_ = false, connecting_ = false;
};

}  // namespace weft::internal
