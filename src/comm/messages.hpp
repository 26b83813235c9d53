// messages.hpp: a rank's messages to and from others, outside schedules: the exchange that moves them, and its links,
// which the two ranks alone make when either first wants one (src/README.md, "Point to point").
#pragma once
#include <map>

#include "src/comm/connector.hpp"
#include "src/executor/exchange.hpp"

namespace weft {

// Thread-bound to the rank.
class Messages {
  public:
    struct Settings {
        const net::Identity* identity;  // as Connector's
        uint64_t name;                  // likewise
        size_t abroad_slot_bytes;
        size_t* heap_used;
        bool cross_memory;  // the kernel may copy between the processes, where it can
        const Movers* movers;
    };
    Messages(HostGroup& group, int rank, const Settings& settings);
    Messages(const Messages&) = delete;
    Messages& operator=(const Messages&) = delete;

    Exchange& exchange() { return exchange_; }

  private:
    Status connect(int peer, PeerLink& link);
    void begin(int peer, PeerLink& link, Binding& binding) const;

    HostGroup* group_;
    Settings settings_;
    size_t slot_bytes_;  // on this host
    Connector here_, abroad_;
    std::map<int, Binding> bindings_;  // by peer
    Exchange exchange_;
};

}  // namespace weft
