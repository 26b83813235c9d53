// connector.hpp: makes the connections of a rank. It chooses a transport for each connection, listens, puts its
// address as connection info, and connects once the peer's address has arrived.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "src/base/rank_set.hpp"
#include "src/executor/plan.hpp"
#include "src/peer_access/peer_access.hpp"
#include "src/segment/oob_store.hpp"
#include "transports/transport.hpp"

namespace weft::internal {

// Connections of equal depth that are made together, such as those of a schedule or those with one peer.
struct ConnectionSet {
    // A connection from `source`, and one to `target`; -1: none.
    struct Wanted {
        int channel = 0;
        int source = -1, target = -1;
        // For a set with one connection in each Wanted, see ConnectionOptions. 0: the size by depth.
        size_t slot_bytes = 0;
        std::byte* slots = nullptr;
        const RegisteredMemory* slot_memory = nullptr;
    };
    struct New {
        bool source, target;
    };

    int depth = 0;  // slots of a connection
    std::vector<Wanted> wanted;
    std::vector<BlockEnds> ends;  // in the order of `wanted`
    std::vector<New> is_new;      // likewise: the connections that no earlier set has made
    // State shared by a new connection and the one in the opposite direction: by peer and index in one direction.
    std::map<std::pair<int, int>, std::shared_ptr<Shared>> shared;
    bool connected = false;
};

// Owned by the planner or by PeerLinks. Thread-bound to the rank. Connecting takes several steps, because the other end
// must listen first; nothing blocks.
class Connector {
  public:
    struct Settings {
        const net::Identity* identity;  // of the communicator; null if its ranks are on one host
        size_t slot_bytes;              // of connections with default_slots slots
        uint64_t name = 0;              // separates connection info of this connector from others'; equal on all ranks
        size_t* heap_used;              // of the rank's part of the segment; null if only_remote
        bool only_remote = false;       // ignores peers on this host
        PeerAccess* peer_access = nullptr;  // for zero-copy messages; null if only_remote
        ConnectionOptions::Driver driver = ConnectionOptions::Driver::rank;
        std::string gpu{};  // as in ConnectionOptions
    };
    Connector(Segment& group, int rank, const Settings& settings)
        : segment_(&group), rank_(rank), settings_(settings) {}

    Status listen(ConnectionSet& set);
    // The transport of all connections with this rank.
    Result<const Transport*> transport_to(int peer);
    // Slots of deeper connections are smaller, so that all connections use the same amount of memory.
    size_t slot_bytes(int depth) const;
    // One step; the first one listens. True when all connections exist. Otherwise `missing` has the ranks that have not
    // listened yet.
    Result<bool> connect(ConnectionSet& set, RankSet& missing);
    // Ends all connections with a peer; no set may use them any more.
    void end(int peer);
    // Whether the peer listens for us on channel 0 with `depth` slots.
    bool called_by(int peer, int depth) const {
        return OobStore(*segment_).get(peer, oob_key({0, peer, depth}, rank_)) != nullptr;
    }

  private:
    // A connection serves all sets with this channel, peer and depth. Each operation leaves it empty. All ranks make
    // the same operations in the same order, so both ends know which connections exist.
    struct Key {
        int channel, peer, depth;
        auto operator<=>(const Key&) const = default;
    };
    bool concerns(int peer) const { return peer >= 0 && (!settings_.only_remote || !segment_->local(peer)); }
    std::byte* arena_in_use(int peer) {
        return settings_.peer_access ? settings_.peer_access->arena_in_use(peer) : nullptr;
    }
    uint64_t oob_key(const Key& key, int sender) const;
    ConnectionOptions options(ConnectionSet& set, size_t index, bool incoming) const;
    Result<const Transport*> transport_to(const ConnectionOptions& options);
    void tell_fallback(int peer, const Transport& transport, bool peer_has_none);

    Segment* segment_;
    int rank_;
    Settings settings_;
    struct Source {
        std::unique_ptr<Receiver> receiver;
        const Transport* transport;
    };
    std::map<Key, Source> receivers_;
    struct Target {
        std::unique_ptr<Sender> sender;
        CanRead reads;
        const Transport* transport;
    };
    std::map<Key, Target> senders_;
    bool told_fallback_ = false;
};

}  // namespace weft::internal
