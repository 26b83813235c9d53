// connector.hpp: makes those connections of a rank's schedule that lead to other hosts, for what does not run by plans
// of the planner: chooses a transport for each, listens, leaves letters with the addresses, connects when those of the
// peers have come. Takes several steps; nothing blocks. Thread-bound to the rank.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "src/executor/plan.hpp"
#include "transports/transport.hpp"

namespace weft {

// A schedule and its connections abroad.
struct Wiring {
    Schedule schedule;
    std::vector<BlockEnds> ends;
    std::vector<std::unique_ptr<Receiver>> receivers;
    std::vector<std::unique_ptr<Sender>> senders;
    // What connections there and back have in common: by peer and their place among those that go one way.
    std::map<std::pair<int, int>, std::shared_ptr<Shared>> shared;
};

class Connector {
  public:
    // identity: of the communicator.
    Connector(HostGroup& group, const net::Identity& identity, int rank, size_t slot_bytes)
        : group_(&group), identity_(&identity), rank_(rank), slot_bytes_(slot_bytes) {}

    // `name` tells the letters of this wiring from those of others, alike on all ranks.
    Status listen(uint64_t name, Wiring& wiring) const;
    // One step, after listen(). True when all connections are there; else `missing` has the ranks that have not
    // listened yet.
    Result<bool> connect(uint64_t name, Wiring& wiring, RankSet& missing) const;

  private:
    bool concerns(int peer) const { return peer >= 0 && !group_->local(peer); }
    ConnectionOptions options(Wiring& wiring, int channel, int peer, bool incoming) const;
    Result<const Transport*> transport_to(const ConnectionOptions& options) const;

    HostGroup* group_;
    const net::Identity* identity_;
    int rank_;
    size_t slot_bytes_;
};

}  // namespace weft
