// device_watch.hpp: watches a rank's kernels and the ranks that they wait for, and reports failures to all ranks. The
// service thread does it, because the rank's thread may wait in the driver or elsewhere.
#pragma once
#include <atomic>
#include <memory>

#include "src/control/service.hpp"
#include "src/gpu/engine/joined_gpu.hpp"

namespace weft::internal {

class DeviceWatch {
  public:
    // `gpu` must outlive this object.
    explicit DeviceWatch(JoinedGpu& gpu) : gpu_(gpu) {}

    // Lets the service thread look regularly, until stop(). Both are for the rank's thread.
    Status start();
    void stop();
    // Reports the failure of a kernel, if there is one. at_others: also looks for ranks that died, left or made a
    // mismatched call. Thread-safe, except that only the service thread may look at others.
    void look(bool at_others, bool may_wait);

  private:
    void look_again();
    bool await_health(const DeviceDiagnosis& diagnosis, bool may_wait);

    JoinedGpu& gpu_;
    std::shared_ptr<Service> service_;
    uint64_t timer_ = 0;                 // used by the service thread
    std::atomic<int64_t> failed_us_{0};  // when a failure was seen whose cause may still arrive; 0: none
    DepartedPeers departed_;             // used by the service thread
    bool accused_ = false;               // used by the service thread: the last look blamed a rank
};

}  // namespace weft::internal
