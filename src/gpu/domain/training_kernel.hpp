// training_kernel.hpp: a kernel of training, whose code is loaded when the first object needs it.
#pragma once
#include "src/drivers/cuda/kernel.hpp"
#include "src/gpu/kernels/device_code.hpp"

namespace weft::internal::cuda {

// `code` lives as long as the process; null: this build has no device code, which is an error. Thread-safe.
Result<Kernel> training_kernel(const Context& context, const DeviceCode* code, const char* name);

}  // namespace weft::internal::cuda
