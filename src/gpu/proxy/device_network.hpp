// device_network.hpp: the connections of a rank's GPU to ranks of other hosts, for step machines and messages, and the
// proxy that serves them. They are made while the ranks join. It also reports failures of these connections.
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "src/control/remote_health.hpp"
#include "src/gpu/proxy/proxy.hpp"
#include "src/planning/connector.hpp"

namespace weft::internal {

// Thread-bound to the rank unless stated otherwise.
class DeviceNetwork {
  public:
    // ends: the remote ends of the rank's domain, without addresses yet. Both ends of a connection have the same name.
    // gpu: the device's bus id.
    DeviceNetwork(std::shared_ptr<Segment> group, const net::Identity& identity, int rank,
                  const std::vector<cuda::RemoteEnd>& ends, std::string gpu);
    ~DeviceNetwork();

    // The transport to all ranks of other hosts; null: they are reached over several.
    Result<const Transport*> transport();
    // Posts addresses for the peers. Called before the ranks join their devices. The ends have slots, which this object
    // uses until it ends. The slots that are registered are the transport's.
    Status listen(const std::vector<cuda::RemoteEnd>& ends, const RegisteredMemory* sent,
                  const RegisteredMemory* received);
    // One step of connecting; true when all ends are connected, or all but those of messages. missing(): the ranks that do
    // not listen yet.
    Result<bool> connect(bool messages);
    const std::vector<int>& missing() const { return missing_; }
    // Called before the first call. `ends` (the first of the same ones, with addresses) are connected. They and `ended`
    // belong to the rank's domain, which must outlive this object.
    Status begin(const std::vector<cuda::RemoteEnd>& ends, const uint32_t* ended);

    void launching(bool captured, uint32_t launch, uint32_t blocks) {
        if (captured)
            connections_->captured();
        else
            connections_->launching(launch, blocks);
    }
    void launched() { proxy_->wake(); }
    // Returns when all data from kernels is sent. False: data remained at the deadline, or its receivers had left.
    bool drain(int64_t deadline_us);

    // ---- For the service thread, which calls them regularly.
    // How long our kernels have waited for other hosts while no message moved, as far as the calls show. Also requests
    // the health of ranks there.
    int64_t stalled_us();
    // A broken connection with no other cause after a while, explained for all ranks; ok: there is none.
    Status trouble();

    // The health of the ranks of other hosts.
    RemoteHealth& health() { return health_; }

  private:
    std::shared_ptr<Segment> segment_;
    int rank_;
    Connector connector_;
    // By whether they are of messages, and depth.
    std::map<std::pair<bool, uint32_t>, ConnectionSet> sets_;
    std::vector<const BlockEnds*> ends_;          // in the order of the constructor's ends
    std::vector<ConnectionSet::Wanted*> wanted_;  // likewise
    std::vector<int> missing_;
    std::shared_ptr<cuda::ProxyConnections> connections_;
    std::shared_ptr<cuda::Proxy> proxy_;
    uint64_t moved_ = 0;            // at the last look
    int64_t stalled_since_us_ = 0;  // 0: no kernel waited
    RemoteHealth health_;
};

}  // namespace weft::internal
