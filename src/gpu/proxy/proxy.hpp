// proxy.hpp: the process's thread that stands for peers on other hosts: it moves what kernels hand over to transports,
// and what transports bring to kernels. It sleeps while nothing is launched, looks without pause while something moves,
// and less and less often while nothing does. Knows transports by their interface alone, and never calls the driver:
// whoever holds the driver may wait for a kernel that waits for us.
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
    // Its owners share it: the thread ends with the last one. A child after fork makes its own.
    static Result<std::shared_ptr<Proxy>> of_process();
    ~Proxy();

    void attach(std::shared_ptr<ProxyConnections> connections);
    // Returns when what kernels have handed over is on its way and the connections are no longer touched. False: some of it
    // was not at the deadline (us, 0: none), or had not moved for so long when those who should take it had left.
    bool detach(const ProxyConnections& connections, int64_t deadline_us, int64_t patience_us);
    // After ProxyConnections::launching() and captured(): a load if it is awake.
    void wake();

    struct Loop;
    Proxy(std::shared_ptr<Loop> loop, OwnedThread thread);

  private:
    std::shared_ptr<Loop> loop_;  // the thread's too
    OwnedThread thread_;
};

}  // namespace weft::internal::cuda
