// dma_buf.hpp: device memory as a dma-buf, by which a network card's driver reaches it.
#pragma once
#include <cstddef>

#include "src/base/fd.hpp"
#include "src/drivers/cuda/context.hpp"

namespace weft::internal::cuda {

struct DmaBuf {
    Fd fd;  // the driver of a network card keeps the memory by itself, so it may be closed after registration
    size_t offset = 0;  // of the address in the dma-buf
};

// Of [address, address + bytes), memory of cuMemAlloc or VMM memory of one device, rounded to whole pages of the host.
// It is of use as long as the mapping does not change. `pcie`: devices on PCIe should access it over PCIe, also if the
// GPU has NVLink-C2C to its processor. Drivers before 12.8 have no such choice.
// cuda.driver: the driver exports no dma-buf. cuda.call otherwise. The context must be of the memory's device.
Result<DmaBuf> export_dma_buf(const Context& context, CUdeviceptr address, size_t bytes, bool pcie);

}  // namespace weft::internal::cuda
