// copy_engine_calls.hpp: the engine of collectives on device memory for which copy engines are wanted. The ranks exchange
// offers on host memory. Copies follow if all ranks offer their buffers, otherwise kernels (docs/design/gpu-copies.md).
#pragma once
#include <vector>

#include "src/comm/engines/host_collectives.hpp"
#include "src/comm/engines/kernel_calls.hpp"

namespace weft::internal {

// Owned by ActiveCalls. Thread-bound to the rank. Needs RankContext::device.
class CopyEngineCalls {
  public:
    // Both engines must outlive this one; `host` executes nothing else meanwhile.
    CopyEngineCalls(RankContext& context, HostCollectives& host, KernelCalls& kernels)
        : context_(context), host_(host), kernels_(kernels) {}

    Begun begin(const Call& call, const CollectiveCall& collective);
    Progress advance();
    Blocked blocked() const { return host_.blocked(); }
    void add_wakeups(Wakeups& wakeups) const { host_.add_wakeups(wakeups); }
    Status look() { return host_.look(); }
    Status cause() { return host_.cause(); }
    Status take_failure() { return std::move(failure_); }
    void abandon() {
        host_.abandon();
        kernels_.abandon();
    }

  private:
    // All ranks have read all offers.
    Progress launch();
    Progress advance_kernels();

    RankContext& context_;
    HostCollectives& host_;
    KernelCalls& kernels_;
    Call call_;
    std::vector<CopyOffer> offers_;  // by rank
    bool by_kernels_ = false;        // the offers did not suffice
    Status failure_;
};

static_assert(CallEngine<CopyEngineCalls>);

}  // namespace weft::internal
