// device_network.hpp: what a rank's device has to do with ranks of other hosts: connections for the algorithms that step
// machines run and for messages, made while the ranks join, and the proxy that serves them; and what is known of
// trouble there.
#pragma once
#include <vector>

#include "src/control/remote_health.hpp"
#include "src/gpu/proxy/proxy.hpp"
#include "src/planning/connector.hpp"

namespace weft::internal {

// Thread-bound to the rank, but for what says otherwise.
class DeviceNetwork {
  public:
    // ends: that the rank's domain will have, without addresses yet; both ends of a connection name it alike.
    DeviceNetwork(std::shared_ptr<Segment> group, const net::Identity& identity, int rank,
                  const std::vector<cuda::RemoteEnd>& ends);
    ~DeviceNetwork();

    // Before the ranks join their devices: addresses are left for the peers.
    Status listen();
    // One step of calling them; true when all have been called. missing(): who has not listened yet.
    Result<bool> connect();
    const std::vector<int>& missing() const { return missing_; }
    // Calls may come. ends (the same, with addresses), ended: of the rank's domain, which must outlive this.
    Status begin(const std::vector<cuda::RemoteEnd>& ends, const uint32_t* ended);

    void launching(bool captured, uint32_t launch, uint32_t blocks) {
        if (captured)
            connections_->captured();
        else
            connections_->launching(launch, blocks);
    }
    void launched() { proxy_->wake(); }
    // Returns when what kernels have handed over is on its way. False: not at the deadline, or those who should take it
    // have left.
    bool drain(int64_t deadline_us);

    // ---- For the service thread, now and again.
    // How long kernels of ours have waited for other hosts without any message moving, as far as looks tell; news of
    // the ranks there are asked for.
    int64_t stalled_us();
    // A broken connection whose cause nobody has told in time, in words for all ranks; ok: there is none.
    Status trouble();

    // Of the ranks there.
    RemoteHealth& health() { return health_; }

  private:
    std::shared_ptr<Segment> segment_;
    int rank_;
    Connector connector_;
    std::map<uint32_t, ConnectionSet> sets_;  // by depth
    std::vector<const BlockEnds*> ends_;      // in the order of the constructor's ends
    std::vector<int> missing_;
    std::shared_ptr<cuda::ProxyConnections> connections_;
    std::shared_ptr<cuda::Proxy> proxy_;
    uint64_t moved_ = 0;            // at the last look
    int64_t stalled_since_us_ = 0;  // 0: nothing was waited for
    RemoteHealth health_;
};

}  // namespace weft::internal
