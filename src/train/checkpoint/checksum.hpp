// checksum.hpp: CRC-32C (Castagnoli), as of iSCSI.
#pragma once
#include <cstddef>
#include <cstdint>

namespace weft::internal::train {

// Reentrant.
uint32_t crc32c(const void* data, size_t bytes);
// The same without the processor's instruction for it.
uint32_t crc32c_portable(const void* data, size_t bytes);

}  // namespace weft::internal::train
