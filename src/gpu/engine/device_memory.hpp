// device_memory.hpp: device memory that Weft gives users (weftMemAlloc): VMM memory, which every device of this
// process with peer access reaches, and which other processes can map. Thread-safe.
#pragma once
#include <cstddef>
#include <span>

#include "src/base/result.hpp"

namespace weft::internal {

// On the device that is current in the calling thread.
Result<void*> allocate_device_memory(size_t bytes);
// False: the address is none that was given here, or was freed before.
bool free_device_memory(void* address);
// The allocation that was given here in which the address lies, as long as it was asked for; empty: in none.
std::span<const std::byte> own_device_memory(const void* address);

}  // namespace weft::internal
