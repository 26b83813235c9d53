// no_device_code.cpp: replaces device_code.cpp in a build without nvcc. The CPU then reduces device buffers.
#include "src/gpu/kernels/device_code.hpp"

namespace weft::internal::cuda {

std::span<const DeviceCode> device_code() { return {}; }
const DeviceCode* optimizer_code() { return nullptr; }
const DeviceCode* hook_code() { return nullptr; }
const char* device_code_targets() { return ""; }

}  // namespace weft::internal::cuda
