// pointer.hpp: which memory an address lies in, and how other processes could reach it.
#pragma once
#include <cstddef>

#include "src/drivers/cuda/driver.hpp"

namespace weft::internal::cuda {

enum class MemoryKind {
    unknown,  // not to CUDA: plain host memory, or nothing at all
    pinned,   // host memory that devices reach
    device,   // of cuMemAlloc (cudaMalloc)
    managed,  // migrates between host and devices
    vmm,      // mapped by virtual memory management, one of perhaps several pieces
    pool,     // of cudaMallocAsync
};
const char* name_of(MemoryKind kind);

struct PointerFacts {
    MemoryKind kind = MemoryKind::unknown;
    int device = -1;         // where it lies; of pinned memory: that it was allocated with
    CUdeviceptr base = 0;    // of the allocation (the reserved range, if it is VMM memory); 0: unknown
    size_t bytes = 0;        // of it
    uint64_t buffer_id = 0;  // new for each allocation of the process: tells a recycled address
    bool ipc = false;        // exportable by export_ipc()
    bool fd = false;         // exportable by export_piece()

    // Whether kernels may be given the address.
    bool on_device() const { return kind != MemoryKind::unknown && kind != MemoryKind::pinned; }
};
// An address that CUDA does not know is no failure. Freed memory is unknown as well. Thread-safe; a few microseconds,
// so it is asked once a buffer where that can be helped.
Result<PointerFacts> describe_pointer(const Driver& driver, const void* address);

}  // namespace weft::internal::cuda
