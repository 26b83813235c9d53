// device_code.hpp: the kernels' fatbins, embedded in the library.
#pragma once
#include <cstddef>
#include <span>

namespace weft::internal::cuda {

struct DeviceCode {
    const char* name;  // the kernel family, for logs
    std::span<const std::byte> fatbin;
};

// Of communicators: the fatbins hold every entry point of kernels.hpp; Library::load loads each separately. Empty: built
// without nvcc.
std::span<const DeviceCode> device_code();
// Of optimizers, which load it when one works on a device. Null: built without nvcc.
const DeviceCode* optimizer_code();
// The same of compressing hooks.
const DeviceCode* hook_code();
// The GPU architectures of the build option: "75 80 90".
const char* device_code_targets();

}  // namespace weft::internal::cuda
