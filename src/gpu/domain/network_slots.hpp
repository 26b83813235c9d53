// network_slots.hpp: the memory of a rank's slots for ranks of other hosts, in one direction. NICs access it, if a
// transport has registered it. Otherwise the proxy copies between it and the transport.
#pragma once
#include <memory>

#include "src/drivers/cuda/memory.hpp"
#include "transports/memory.hpp"

namespace weft::internal::cuda {

// Move-only. Its owner ends it after the connections that use it, and after the kernels.
struct NetworkSlots {
    DeviceMemory device;  // one of the two, or none
    PinnedMemory pinned;
    const void* transport = nullptr;                     // that has registered it
    std::shared_ptr<const RegisteredMemory> registered;  // null: it is not. Declared last: it ends before the memory

    bool on_device() const { return device.address() != 0; }
    size_t bytes() const { return on_device() ? device.bytes() : pinned.bytes(); }
    CUdeviceptr address() const { return on_device() ? device.address() : pinned.address(); }  // in kernels
    std::byte* for_kernels() const { return reinterpret_cast<std::byte*>(address()); }
    // As the host names it. The host cannot read device memory.
    std::byte* for_host() const { return static_cast<std::byte*>(on_device() ? device.data() : pinned.data()); }
};

}  // namespace weft::internal::cuda
