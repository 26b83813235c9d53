// pointer.hpp: which kind of memory an address is in, and how other processes can map it.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "src/drivers/cuda/driver.hpp"

namespace weft::internal::cuda {

enum class MemoryKind {
    unknown,  // CUDA does not know it: plain host memory, or no memory
    pinned,   // host memory that devices can access
    device,   // of cuMemAlloc (cudaMalloc)
    managed,  // migrates between host and devices
    vmm,      // mapped by virtual memory management, one of perhaps several pieces
    pool,     // of cudaMallocAsync
};
const char* name_of(MemoryKind kind);

struct PointerFacts {
    MemoryKind kind = MemoryKind::unknown;
    int device = -1;         // the device that holds it, or for which it was pinned
    CUdeviceptr base = 0;    // of the allocation (the reserved range, if it is VMM memory); 0: unknown
    size_t bytes = 0;        // of the allocation
    uint64_t buffer_id = 0;  // new for each allocation of the process: detects a recycled address
    bool ipc = false;        // exportable by export_ipc()
    bool fd = false;         // exportable by export_piece()

    // Whether kernels may access the address.
    bool on_device() const { return kind != MemoryKind::unknown && kind != MemoryKind::pinned; }
};
// VMM memory of recent queries: the driver tells it from other memory by further calls. Thread-bound.
class KnownVmmMemory {
  public:
    bool contains(uint64_t buffer_id) const { return buffer_id != 0 && ids_[buffer_id % ids_.size()] == buffer_id; }
    void insert(uint64_t buffer_id) { ids_[buffer_id % ids_.size()] = buffer_id; }

  private:
    std::array<uint64_t, 64> ids_{};
};

// An unknown address is no failure, and freed memory is unknown too. Thread-safe. A query takes microseconds, so it is
// made once per buffer if possible. It needs some current context, and is allowed during captures. `known`: null, or
// where the answers for VMM memory are kept.
Result<PointerFacts> describe_pointer(const Driver& driver, const void* address, KnownVmmMemory* known = nullptr);

}  // namespace weft::internal::cuda
