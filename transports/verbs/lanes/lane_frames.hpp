// lane_frames.hpp: the frames of a link's socket about a lane that fails and is made again.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transports/verbs/lanes/probe_page.hpp"
#include "transports/verbs/wire.hpp"

namespace weft::internal::verbs {

// A queue pair of a link. Each time that the lane is made, its generation is one more.
struct LaneId {
    uint32_t lane = 0, generation = 0;
    bool operator==(const LaneId&) const = default;
};

// One side's statement that it uses a lane no more: its queue pair is destroyed, so nothing lands there afterwards.
// It says all that has arrived over all lanes. All else that the peer sent over this lane is lost.
struct LaneReport {
    struct Message {
        uint64_t number;
        uint32_t parts;  // a bit for each part that has arrived
    };
    struct Connection {
        uint32_t connection;
        uint64_t released;  // all earlier messages have arrived
        std::vector<Message> messages;
    };
    LaneId id;
    Failure cause;
    std::vector<Connection> connections;  // of the others nothing has arrived

    const Connection* find(uint32_t connection) const;
    void write(ByteWriter& to) const;
    static std::optional<LaneReport> read(ByteReader& from);
};

// How the lower rank makes a lane again: its port as it is now, and the new queue pair. The other side answers alike.
struct LaneOffer {
    LaneId id;
    PortOffer port;
    PairNumber pair{};
    // In an answer: places in the lists of the answering and of the other side.
    uint32_t gid = 0, peer_gid = 0;
    ProbeTarget probe = {};  // for the other side's probe

    void write(ByteWriter& to) const;
    static std::optional<LaneOffer> read(ByteReader& from);
};

}  // namespace weft::internal::verbs
