// device_code.hpp: the kernels as the driver loads them: fatbins, in the library's own bytes.
#pragma once
#include <cstddef>
#include <span>

namespace weft::internal::cuda {

struct DeviceCode {
    const char* name;  // of the family, for logs
    std::span<const std::byte> fatbin;
};

// Each is loaded for itself (Library::load); together they hold every entry point of kernels.hpp. Empty: built without
// nvcc.
std::span<const DeviceCode> device_code();
// For which GPUs, as in the build option: "75 80 90".
const char* device_code_targets();

}  // namespace weft::internal::cuda
