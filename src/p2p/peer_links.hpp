// peer_links.hpp: connections between two ranks, outside schedules. The two ranks make them at the first message
// (docs/design/connections.md, Point to point).
#pragma once
#include <map>

#include "src/p2p/exchange.hpp"
#include "src/planning/connector.hpp"

namespace weft::internal {

// Owned by Messages. Thread-bound to the rank.
class PeerLinks {
  public:
    struct Settings {
        const net::Identity* identity;  // see Connector::Settings
        uint64_t name;                  // see Connector::Settings
        size_t remote_slot_bytes;
        size_t* heap_used;
        PeerAccess* peer_access;  // see Connector::Settings
        const UserMemory* user_memory;
    };
    PeerLinks(Segment& group, int rank, const Settings& settings);
    PeerLinks(const PeerLinks&) = delete;
    PeerLinks& operator=(const PeerLinks&) = delete;

    // One step of connecting to a peer. Both ends must take theirs.
    Status connect(int peer, PeerLink& link);
    // Ends the connections with the peer, and all that they do with this rank's memory. May take two seconds.
    void end(int peer);
    // Whether the peer has taken its first step towards this rank.
    bool called_by(int peer) const;

  private:
    int depth_to(int peer) const;
    void begin(int peer, PeerLink& link, ConnectionSet& set) const;

    Segment* segment_;
    const UserMemory* user_memory_;
    Connector here_, remote_;
    std::map<int, ConnectionSet> sets_;  // by peer, one connection each way
};

}  // namespace weft::internal
