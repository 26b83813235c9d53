// kernel_set.hpp: the kernels that collectives launch, loaded for one context. All ranks of the process on that
// device share them: they are loaded before the ranks meet, for loading may wait for the device.
#pragma once
#include <memory>

#include "src/drivers/cuda/kernel.hpp"
#include "src/gpu/kernels/kernels.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal::cuda {

// Keeps its context. Thread-safe.
class KernelSet {
  public:
    // Of the device's primary context; loaded when nobody has it yet. Fails with a sentence where the build has no
    // device code, or the driver does not take it.
    static Result<std::shared_ptr<const KernelSet>> of_device(const Driver& driver, int device);

    const Context& context() const { return context_; }
    const Driver& driver() const { return context_.driver(); }
    // Of the bodies that collectives have, and see copier().
    const Kernel& kernel(Body body, weftDataType_t type, bool sums) const {
        return kernels_[size_t(body)][size_t(type)][size_t(sums)];
    }
    const Kernel& messages() const { return messages_; }
    const Kernel& access() const { return access_; }
    // Copies what one rank reaches; for probing.
    const Kernel& copier() const { return kernel(Body::local_reduce, weftUint32, true); }
    // What its rank says of the device when it joins.
    const DeviceFacts& facts() const { return facts_; }
    // Fences of our kernels need not wait for stores of others.
    bool sync_domains() const { return sync_domains_; }
    // Kernels of several processes run at once.
    bool mps() const { return mps_; }

    KernelSet() = default;

  private:
    Status load(const Driver& driver, int device);

    Context context_;
    Kernel kernels_[body_count][weftNumTypes][2];
    Kernel messages_, access_;
    DeviceFacts facts_{};
    bool sync_domains_ = false, mps_ = false;
};

}  // namespace weft::internal::cuda
