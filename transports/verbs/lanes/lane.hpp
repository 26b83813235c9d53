// lane.hpp: a queue pair of a link, and the ids of its requests.
#pragma once
#include <memory>
#include <vector>

#include "src/drivers/verbs/queue_pair.hpp"
#include "transports/verbs/flows.hpp"
#include "transports/verbs/lanes/probe_page.hpp"

namespace weft::internal::verbs {

// How far a lane is. docs/design/verbs-failover.md has the steps.
enum class LaneState : uint8_t {
    living,     // carries messages
    receiving,  // made again: the peer may send, and this side tests whether the path works
    draining,   // failed: its completions are awaited
    drained,    // its queue pair is destroyed, and the peer's report is awaited
    gone,       // both sides have reported
};

// A queue pair, as the set-up hands it over: connected, with receive requests posted. Destroyed in the right order.
struct Lane {
    size_t rail = 0, device = 0, peer_device = 0;  // the devices in Devices::all() of each side
    std::shared_ptr<CompletionQueue> queue;
    std::unique_ptr<QueuePair> pair;  // null: drained or gone
    PathEnd own, peer;
    struct Probe {
        const ProbePage* from = nullptr;  // of the device; null: it has none
        ProbeTarget to;                   // if the lane was made again
    } probe;
    struct Receives {
        int requests = 0;
        int taken = 0;  // of them, to post again; negative: unknown
    } receives;

    PairNumber numbers() const;
    void set_peer(const PairNumber& numbers);

    // A request that was posted: of a part of a message, a transfer or a confirmation of transfers; null: of none.
    struct Posted {
        enum Kind : uint8_t { message, transfer, confirmation };
        Outgoing* of = nullptr;
        uint64_t number = 0;
        int part = 0;
        Kind kind = message;
    };
    std::vector<Posted> ring;                      // by index modulo its size
    uint64_t posted = 0, done = 0, signalled = 0;  // indexes; requests before `signalled` will complete

    LaneState state = LaneState::living;
    uint32_t generation = 0;

    bool full() const { return !has_room(1); }
    bool has_room(uint64_t requests) const { return posted - done + requests <= ring.size(); }
    bool works() const { return state == LaneState::living || state == LaneState::receiving; }
    // One more than the index of the request with this id.
    uint64_t end_of(uint64_t id) const { return done + ((id - done) & 0xff'ffff'ffff) + 1; }
    bool all_ended() const { return receives.taken >= receives.requests && done == posted; }
    // The request was posted.
    void add(const Posted& request, bool signals) {
        ring[size_t(posted++ % ring.size())] = request;
        if (signals) signalled = posted;
    }
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

}  // namespace weft::internal::verbs
