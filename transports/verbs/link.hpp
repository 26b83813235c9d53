// link.hpp: the queue pairs between two ranks, and the messages of all their connections in both directions. Data and
// credits arrive as completions only; no memory is polled. Thread-bound to the thread that drives the endpoint.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "src/drivers/verbs/queue_pair.hpp"
#include "transports/verbs/registered.hpp"
#include "transports/verbs/wire.hpp"

namespace weft::internal::verbs {

class Link;

// The sending end of a connection: slots that messages wait in, and counts of messages. Its window is twice the
// receiver's slots: a rank may fill all slots again before it has heard that they were released.
struct Outgoing {
    int self = 0, peer = 0, channel = 0;
    uint64_t depth = 0;
    size_t slot_bytes = 0, stride = 0;
    std::unique_ptr<SlotMemory> memory;

    // Set by the thread that drives, once both sides are ready.
    Link* link = nullptr;
    uint32_t connection = 0;
    Slots slots;

    // A message that is published and not complete.
    struct Message {
        const std::byte* data = nullptr;
        const Registered* memory = nullptr;  // of `data`; null: the slot
        uint64_t bytes = 0;
        int parts_left = 0;
    };
    std::vector<Message> messages;  // by number modulo the window
    // completed <= posted <= next, and posted - released <= depth.
    uint64_t next = 0, posted = 0, completed = 0, released = 0;
    uint64_t lent_end = 0;  // one more than the last message in the caller's memory
    Status failure;         // of the set-up
    bool closed = false;    // the sender has gone; what it published still goes out

    uint64_t window() const { return 2 * depth; }
    bool has_room() const { return next < completed + window() && next < released + window(); }
    bool through() const { return posted == next && completed >= lent_end; }
    Message& message(uint64_t number) { return messages[size_t(number % window())]; }
    std::byte* slot(uint64_t number) const { return memory->data() + size_t(number % window()) * stride; }
};

// The receiving end of a connection.
struct Incoming {
    int self = 0, peer = 0, channel = 0;
    uint64_t depth = 0;
    size_t slot_bytes = 0, stride = 0;
    std::unique_ptr<SlotMemory> memory;  // lives as long as the link: the peer may still write there

    Link* link = nullptr;  // once the peer's sender has come
    uint32_t connection = 0;

    static constexpr int empty = -1;
    std::vector<int> parts_left;          // of the message in each slot, or `empty`
    uint64_t released = 0, credited = 0;  // messages; those that the sender knows of
    Status failure;
    bool closed = false;

    bool ready() const { return parts_left[size_t(released % depth)] == 0; }
    // Half of the slots at once: the other half keeps the sender busy meanwhile.
    bool owes_credits() const { return released - credited >= (depth + 1) / 2; }
    std::byte* slot(uint64_t number) const { return memory->data() + size_t(number % depth) * stride; }
};

// A queue pair, as the set-up hands it over: connected, with receive requests posted. Destroyed in the right order.
struct Lane {
    size_t rail = 0, device = 0;
    std::shared_ptr<CompletionQueue> queue;
    std::unique_ptr<QueuePair> pair;
    PathEnd own, peer;
    int send_requests = 0, receive_requests = 0;

    // A request that was posted: of a message, or credits (null).
    struct Posted {
        Outgoing* of = nullptr;
        uint64_t message = 0;
    };
    std::vector<Posted> ring;                      // by index modulo send_requests
    uint64_t posted = 0, done = 0, signalled = 0;  // indexes; requests before `signalled` will complete
    int taken = 0;                                 // receive requests to post again
    bool full() const { return posted - done >= uint64_t(send_requests); }
};

// The id of a request says which link and lane completes it: after an error nothing else in a completion is valid.
struct RequestId {
    static constexpr uint32_t links_most = 1 << 15;
    static constexpr uint64_t of(bool receives, uint32_t link, size_t lane, uint64_t index) {
        return uint64_t(receives) << 63 | uint64_t(link) << 48 | uint64_t(lane) << 40 | (index & 0xff'ffff'ffff);
    }
    static constexpr bool receives(uint64_t id) { return id >> 63; }
    static constexpr uint32_t link(uint64_t id) { return uint32_t(id >> 48 & 0x7fff); }
    static constexpr size_t lane(uint64_t id) { return size_t(id >> 40 & 0xff); }
};
// Posts `count` empty receive requests, at most receives_at_once. An errno value, or 0.
inline constexpr int receives_at_once = 16;
int post_receives(QueuePair& pair, uint64_t id, int count);

class Link {
  public:
    Link(uint32_t index, int self, int peer, const Settings& settings, std::vector<Lane> lanes);

    void add(std::shared_ptr<Outgoing> outgoing);
    void add(std::shared_ptr<Incoming> incoming);
    // Null: unknown.
    Outgoing* outgoing(uint32_t connection) const;
    Incoming* incoming(uint32_t connection) const;

    // Posts what credits and the send queues allow.
    void post(Outgoing& outgoing);
    // Returns credits if enough are owed.
    void post_credits(Incoming& incoming);
    // Takes a completion. True: a rank that waits may go on.
    bool take(const abi::Completion& completion);

    // The first cause stays. `told`: the peer knows it already.
    void fail(Status why);
    bool failed() const { return !failure_.ok(); }
    // Failed while the peer lived: messages may be lost.
    bool lost() const { return failed() && ended_us_ == 0; }
    // The peer's process or endpoint has ended. What it sent before may still arrive for a moment.
    void peer_ended(Status why, int64_t now_us);
    bool peer_has_ended() const { return ended_us_ != 0; }
    // The failure, if a wait should end now.
    const Status& failure();
    bool waits_for_late_data() const { return ended_us_ != 0 && failure_.ok(); }

    // Whether requests are posted that will complete, or messages wait for credits.
    bool busy() const;
    // Ends all requests: afterwards no device uses the caller's memory.
    void end_requests();
    // Releases the slots of closed senders whose messages are complete. Credits may still come.
    void release_closed();
    uint32_t index() const { return index_; }
    const std::vector<Lane>& lanes() const { return lanes_; }

  private:
    struct Part {
        const std::byte* data;
        uint64_t bytes, offset;  // in the slot
    };
    bool post_message(Outgoing& outgoing);
    bool post_part(Outgoing& outgoing, size_t lane, const Part& part, bool with_header, int parts);
    bool take_sent(Lane& lane, uint64_t index);
    bool take_received(Lane& lane, uint32_t word);
    bool take_part(Incoming& incoming, uint32_t word);
    bool take_credits(Outgoing& outgoing, uint32_t word);
    void replenish(size_t lane);
    void retry_starved();
    void damaged(const char* what, uint32_t word);

    const uint32_t index_;
    const int self_, peer_;
    const size_t striped_bytes_;
    const PathOptions path_;
    std::vector<Lane> lanes_;
    std::vector<std::shared_ptr<Outgoing>> outgoing_;
    std::vector<std::shared_ptr<Incoming>> incoming_;
    bool starved_ = false;  // something waits for a place in a send queue
    Status failure_, ending_;
    int64_t ended_us_ = 0;
};

}  // namespace weft::internal::verbs
