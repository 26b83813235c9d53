// vmm.hpp: device memory by virtual memory management: made, mapped at an address, opened for devices, each a step of
// its own, so that other processes can map the same memory by a file descriptor.
#pragma once
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "src/base/unshared_fd.hpp"
#include "src/drivers/cuda/context.hpp"

namespace weft::internal::cuda {

// Pieces of device memory, mapped side by side at one address. Must not outlive its context.
class VmmMemory {
  public:
    VmmMemory() = default;
    // One piece of at least `bytes`, rounded up to whole pages of the device (2 MiB as a rule), and exportable. `peers`: further
    // devices of this process that may reach it; with peer access between the devices.
    static Result<VmmMemory> allocate(const Context& context, size_t bytes, const std::vector<int>& peers = {});
    // Memory of another process, by descriptors that its export_piece() gave, which may be closed afterwards, and how
    // many bytes each piece has.
    static Result<VmmMemory> import(const Context& context, std::span<const UnsharedFd> descriptors,
                                    std::span<const uint64_t> bytes);
    VmmMemory(VmmMemory&& other) noexcept { *this = std::move(other); }
    VmmMemory& operator=(VmmMemory&& other) noexcept;
    ~VmmMemory();

    CUdeviceptr address() const { return address_; }
    void* data() const { return reinterpret_cast<void*>(address_); }
    size_t bytes() const { return bytes_; }

  private:
    struct Piece {
        CUmemGenericAllocationHandle handle;
        size_t bytes;
        bool mapped = false;
    };
    Status map(const Context& context, const std::vector<int>& peers);
    const Driver* driver_ = nullptr;
    CUcontext context_ = nullptr;
    std::vector<Piece> pieces_;
    CUdeviceptr address_ = 0;
    size_t bytes_ = 0;
};

// Bytes of which every piece on the device is a multiple.
Result<size_t> vmm_granularity(const Driver& driver, int device);

struct VmmPiece {
    CUdeviceptr address;
    size_t bytes;
};
// Of which pieces [address, address + bytes) is made, wherever they came from: the first and the last one whole. Fails
// if it has a hole, is other memory, or is made of more than `most`. Some context must be current.
Result<std::vector<VmmPiece>> vmm_pieces(const Driver& driver, CUdeviceptr address, size_t bytes, size_t most);
// Whether kernels of the device may write all of them.
Result<bool> vmm_opened(const Driver& driver, std::span<const VmmPiece> pieces, int device);
// A descriptor of the piece of VMM memory around `address`, wherever it came from (a caching allocator, say).
Result<UnsharedFd> export_piece(const Driver& driver, CUdeviceptr address);

}  // namespace weft::internal::cuda
