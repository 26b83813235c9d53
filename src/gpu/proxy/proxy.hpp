// proxy.hpp: the process's thread that represents peers on other hosts. It moves data from kernels to transports, and
// from transports to kernels. It sleeps while nothing is launched, polls without pause while data moves, and polls less
// and less often otherwise. It knows only the interface of transports. It never calls the driver: a thread that holds
// the driver may wait for a kernel that waits for the proxy.
#pragma once
#include <functional>
#include <memory>

#include "src/base/result.hpp"
#include "src/base/thread.hpp"
#include "src/gpu/proxy/proxy_connections.hpp"

namespace weft::internal::cuda {

// Thread-safe.
class Proxy {
  public:
    // Its owners share it, and the thread ends with the last owner. A child after fork makes its own proxy.
    static Result<std::shared_ptr<Proxy>> of_process();
    ~Proxy();

    void attach(std::shared_ptr<ProxyConnections> connections);
    // Returns when all data from kernels is sent and the connections are no longer used. False: data remained at the
    // deadline (us, 0: none), or had not moved for `patience_us` although its receivers had left.
    bool detach(const ProxyConnections& connections, int64_t deadline_us, int64_t patience_us);
    // Call it after ProxyConnections::launching() or captured(). One load if the proxy is awake.
    void wake();

    struct Loop;
    Proxy(std::shared_ptr<Loop> loop, OwnedThread thread);

  private:
    std::shared_ptr<Loop> loop_;  // shared with the thread
    OwnedThread thread_;
};

}  // namespace weft::internal::cuda
