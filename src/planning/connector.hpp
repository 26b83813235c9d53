// connector.hpp: makes the connections of a rank's schedules: chooses a transport for each, listens, puts connection info
// with the addresses, connects when those of the peers have come. Takes several steps, because the other end must
// listen first; nothing blocks. Thread-bound to the rank.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "src/executor/plan.hpp"
#include "src/peer_access/peer_arenas.hpp"
#include "transports/transport.hpp"

namespace weft::internal {

// A schedule and the ends of its connections: shared by the plans of all sizes.
struct Binding {
    Schedule schedule;
    std::vector<std::vector<bool>> stable_sends;  // find_stable_sends(schedule)
    std::vector<BlockEnds> ends;
    struct New {
        bool source, target;
    };
    std::vector<New> is_new;  // by block: which connections no other schedule had before
    // What new connections there and back have in common: by peer and their place among those that go one way.
    std::map<std::pair<int, int>, std::shared_ptr<Shared>> shared;
    bool connected = false;
};

class Connector {
  public:
    struct Settings {
        const net::Identity* identity;  // of the communicator; null if its ranks are on one host
        size_t slot_bytes;              // of connections of a few slots
        uint64_t name = 0;  // tells the connection info of this connector from those of others; alike on all ranks
        size_t* heap_used;  // of the rank; null where there is nothing on this host to be connected:
        bool only_remote = false;  // connections on this host are nobody's, or another's
        bool uses_cma = false;     // the kernel may copy between the processes, where it can
        bool maps_arenas = false;  // what lies in weftHostAlloc's memory is read there
    };
    Connector(Segment& group, int rank, const Settings& settings)
        : segment_(&group), rank_(rank), settings_(settings), arenas_(group, rank) {}

    Status listen(Binding& binding);
    // Of connections of so many slots: more than a few are smaller, so that all take as much memory.
    size_t slot_bytes(int depth) const;
    // One step; listens first. True when all connections are there; else `missing` has the ranks that have not listened
    // yet.
    Result<bool> connect(Binding& binding, RankSet& missing);
    // Whether the peer listens to us, of schedules whose first channel has so many slots.
    bool called_by(int peer, int depth) const {
        return segment_->oob_get(peer, oob_key({0, peer, depth}, rank_)) != nullptr;
    }

  private:
    // A connection serves all schedules that want one from there to there with so many slots: each leaves it empty, and
    // ranks go from one operation to the next alike, so both ends know which ones there are.
    struct Key {
        int channel, peer, depth;
        auto operator<=>(const Key&) const = default;
    };
    bool concerns(int peer) const { return peer >= 0 && (!settings_.only_remote || !segment_->local(peer)); }
    uint64_t oob_key(const Key& key, int sender) const;
    ConnectionOptions options(Binding& binding, int channel, int peer, bool incoming) const;
    Result<const Transport*> transport_to(const ConnectionOptions& options) const;
    CanRead can_read(int peer);
    std::byte* arena_of(int peer);

    Segment* segment_;
    int rank_;
    Settings settings_;
    PeerArenas arenas_;
    std::map<Key, std::unique_ptr<Receiver>> receivers_;
    struct Target {
        std::unique_ptr<Sender> sender;
        CanRead reads;
    };
    std::map<Key, Target> senders_;
};

}  // namespace weft::internal
