// peer_links.hpp: the connections of a rank with single others, outside schedules: which the two alone make when either
// first wants one (docs/design/connections.md, Point to point). Thread-bound to the rank.
#pragma once
#include <map>

#include "src/p2p/exchange.hpp"
#include "src/planning/connector.hpp"

namespace weft::internal {

class PeerLinks {
  public:
    struct Settings {
        const net::Identity* identity;  // as Connector's
        uint64_t name;                  // likewise
        size_t remote_slot_bytes;
        size_t* heap_used;
        bool uses_cma;  // the kernel may copy between the processes, where it can
        bool maps_arenas = false;
    };
    PeerLinks(Segment& group, int rank, const Settings& settings);
    PeerLinks(const PeerLinks&) = delete;
    PeerLinks& operator=(const PeerLinks&) = delete;

    // One step towards the link with a peer; both ends take theirs.
    Status connect(int peer, PeerLink& link);
    // Whether the peer has taken its first step.
    bool called_by(int peer) const;

  private:
    int depth_to(int peer) const;
    void begin(int peer, PeerLink& link, Binding& binding) const;

    Segment* segment_;
    Connector here_, remote_;
    std::map<int, Binding> bindings_;  // by peer
};

}  // namespace weft::internal
