// vmm.hpp: device memory by virtual memory management: made, mapped at an address, opened for devices, each a step of
// its own, so that other processes can map the same memory by a file descriptor.
#pragma once
#include <cstddef>
#include <utility>
#include <vector>

#include "src/base/fd.hpp"
#include "src/drivers/cuda/context.hpp"

namespace weft::cuda {

// One piece of device memory mapped at one address. Must not outlive its context.
class VmmMemory {
  public:
    VmmMemory() = default;
    // At least `bytes`, rounded up to whole pages of the device (2 MiB as a rule), and exportable. `peers`: further
    // devices of this process that may reach it; with peer access between the devices.
    static Result<VmmMemory> allocate(const Context& context, size_t bytes, const std::vector<int>& peers = {});
    // Memory of another process, by the descriptor that its exported() gave; the descriptor may be closed afterwards.
    // `bytes`: its bytes() there.
    static Result<VmmMemory> import(const Context& context, int fd, size_t bytes);
    VmmMemory(VmmMemory&& other) noexcept { *this = std::move(other); }
    VmmMemory& operator=(VmmMemory&& other) noexcept;
    ~VmmMemory();

    CUdeviceptr address() const { return address_; }
    void* data() const { return reinterpret_cast<void*>(address_); }
    size_t bytes() const { return bytes_; }
    Result<Fd> exported() const;

  private:
    Status map(const Context& context, const std::vector<int>& peers);
    const Driver* driver_ = nullptr;
    CUcontext context_ = nullptr;
    CUmemGenericAllocationHandle handle_ = 0;
    CUdeviceptr address_ = 0;
    size_t bytes_ = 0;
    bool mapped_ = false;
};

// Bytes of which every piece on the device is a multiple.
Result<size_t> vmm_granularity(const Driver& driver, int device);
// A descriptor of the piece of VMM memory around `address`, wherever it came from (a caching allocator, say).
Result<Fd> export_piece(const Driver& driver, CUdeviceptr address);

}  // namespace weft::cuda
