// kernel_set.hpp: the kernels that collectives launch, loaded for one context. The ranks of the process on that device
// share them. They are loaded before the ranks meet, because loading may wait for the device.
#pragma once
#include <memory>

#include "src/drivers/cuda/kernel.hpp"
#include "src/gpu/kernels/kernels.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal::cuda {

// Retains its context. Thread-safe.
class KernelSet {
  public:
    // The set for the device's primary context, which is loaded at the first call. Fails if the build has no device
    // code, or the driver rejects it.
    static Result<std::shared_ptr<const KernelSet>> of_device(const Driver& driver, int device);

    const Context& context() const { return context_; }
    const Driver& driver() const { return context_.driver(); }
    // The kernels of collectives, for a kernel_type(); see also copier() and adder().
    const Kernel& kernel(Body body, weftDataType_t type, bool sums) const {
        return kernels_[size_t(body)][size_t(type)][size_t(sums)];
    }
    const Kernel& messages() const { return messages_; }
    const Kernel& access() const { return access_; }
    // Copies memory that one rank can access; for probing.
    const Kernel& copier() const { return kernel(Body::local_reduce, weftInt32, true); }
    // Converts floats to and from 16 bits, for training.
    const Kernel& converter() const { return converter_; }
    // Multiplies or divides floats, for training.
    const Kernel& scaler() const { return scaler_; }
    // Turn blocks of floats into whole numbers with a scale, and back, for training.
    const Kernel& encoder() const { return encoder_; }
    const Kernel& decoder() const { return decoder_; }
    // Adds up memory that one rank can access.
    const Kernel& adder(weftDataType_t type) const { return kernel(Body::local_reduce, kernel_type(type), true); }
    // The facts about the device that its rank reports when it joins.
    const DeviceFacts& facts() const { return facts_; }
    // Whether fences of our kernels can ignore the stores of other kernels.
    bool sync_domains() const { return sync_domains_; }
    // Whether kernels of several processes can run at once.
    bool mps() const { return mps_; }

    KernelSet() = default;

  private:
    Status load(const Driver& driver, int device);

    Context context_;
    Kernel kernels_[body_count][weftNumTypes][2];
    Kernel messages_, access_, converter_, scaler_, encoder_, decoder_;
    DeviceFacts facts_{};
    bool sync_domains_ = false, mps_ = false;
};

}  // namespace weft::internal::cuda
