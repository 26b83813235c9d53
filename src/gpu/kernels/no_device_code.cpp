// no_device_code.cpp: in the place of device_code.cpp where there is no nvcc: device buffers are then reduced by the
// CPU.
#include "src/gpu/kernels/device_code.hpp"

namespace weft::internal::cuda {

std::span<const DeviceCode> device_code() { return {}; }
const char* device_code_targets() { return ""; }

}  // namespace weft::internal::cuda
