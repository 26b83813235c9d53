// device_memory.hpp: the device memory that users get (weftMemAlloc). It is VMM memory, which all devices of this
// process with peer access can access and which other processes can map. Thread-safe.
#pragma once
#include <cstddef>
#include <span>

#include "src/base/result.hpp"

namespace weft::internal {

// Allocates on the current device of the calling thread.
Result<void*> allocate_device_memory(size_t bytes);
// False: the address was not allocated here, or was freed before.
bool free_device_memory(void* address);
// The allocation around the address, with the requested size; empty: the address is in none.
std::span<const std::byte> own_device_memory(const void* address);

}  // namespace weft::internal
