// child_probes.hpp: finds children in the tree of hosts that died before they connected. Such a child leaves no connection
// that ends, but its port refuses connections.
#pragma once
#include <functional>
#include <map>
#include <memory>

#include "src/control/control_connection.hpp"
#include "src/control/rank_table.hpp"

namespace weft::internal {

// Owned by TreeLinks, thread-bound to the service thread.
class ChildProbes {
  public:
    // A firewall may refuse connections of this direction, so only a child that is late to connect is called.
    static constexpr int64_t first_us = 500'000;

    // `rank_table` outlives it. on_dead may call forget().
    ChildProbes(Service& service, const net::Identity& identity, const RankTable& rank_table, int host,
                std::function<void(int child, const Status& why)> on_dead)
        : service_(&service),
          identity_(identity),
          rank_table_(&rank_table),
          host_(host),
          on_dead_(std::move(on_dead)) {}
    // Connects to the child's listener, twice a second at most. on_dead is called once two connections in a row are
    // refused.
    void call(int child, int64_t now);
    void forget(int child) { probes_.erase(child); }

  private:
    struct Probe {
        int64_t next_us = 0;
        int refusals = 0;  // one after the other
        std::unique_ptr<AsyncConnect> connect;
    };
    void take(int child, const Result<Fd>& socket);

    Service* service_;
    net::Identity identity_;
    const RankTable* rank_table_;
    int host_;
    std::function<void(int, const Status&)> on_dead_;
    std::map<int, Probe> probes_;
};

}  // namespace weft::internal
