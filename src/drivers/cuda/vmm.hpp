// vmm.hpp: device memory of CUDA's virtual memory management. Separate steps create memory, map it at an address and
// grant access to devices. So other processes of the host can map the same memory by file descriptor, and processes of
// all hosts of the NVLink domain by fabric handle.
#pragma once
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/unshared_fd.hpp"
#include "src/drivers/cuda/context.hpp"

namespace weft::internal::cuda {

// Names one piece on every host of an NVLink domain. It works as long as the piece exists.
using FabricHandle = std::array<std::byte, 64>;
enum class VmmExport : uint8_t { descriptor, fabric };

// Pieces of device memory that are mapped side by side at one address. Must not outlive its context.
class VmmMemory {
  public:
    VmmMemory() = default;
    // One exportable piece of at least `bytes`, rounded up to whole pages of the device (usually 2 MiB). `peers`:
    // further devices of this process that may access it, if they have peer access.
    static Result<VmmMemory> allocate(const Context& context, size_t bytes, const std::vector<int>& peers = {},
                                      VmmExport way = VmmExport::descriptor);
    // Memory of another process: the descriptors of its export_piece(), which may be closed afterwards, and the size of
    // each piece.
    static Result<VmmMemory> import(const Context& context, std::span<const UnsharedFd> descriptors,
                                    std::span<const uint64_t> bytes);
    // Memory of one piece of another process, perhaps on another host of the NVLink domain. The importer keeps the piece
    // alive.
    static Result<VmmMemory> import_fabric(const Context& context, const FabricHandle& from, size_t bytes);
    VmmMemory(VmmMemory&& other) noexcept { *this = std::move(other); }
    VmmMemory& operator=(VmmMemory&& other) noexcept;
    ~VmmMemory();

    CUdeviceptr address() const { return address_; }
    void* data() const { return reinterpret_cast<void*>(address_); }
    size_t bytes() const { return bytes_; }
    // Of memory of one piece: the driver's handle, which this object keeps.
    CUmemGenericAllocationHandle handle() const { return pieces_[0].handle; }

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

// The size of every piece on the device is a multiple of this.
Result<size_t> vmm_granularity(const Driver& driver, int device);

struct VmmPiece {
    CUdeviceptr address;
    size_t bytes;
};
// The pieces of [address, address + bytes), wherever they were allocated; the first and last pieces are whole. Fails if
// the range has a hole, is other memory, or has more than `most` pieces. Some context must be current.
Result<std::vector<VmmPiece>> vmm_pieces(const Driver& driver, CUdeviceptr address, size_t bytes, size_t most);
// Whether kernels of the device may write to all pieces.
Result<bool> vmm_opened(const Driver& driver, std::span<const VmmPiece> pieces, int device);
// A descriptor of a handle that was created for that; doing: the text after "could not" (Driver::check()).
Result<UnsharedFd> export_handle(const Driver& driver, CUmemGenericAllocationHandle handle, const std::string& doing);
// The fabric handle of memory that was allocated for that.
Result<FabricHandle> export_fabric(const Driver& driver, const VmmMemory& memory);
// A descriptor of the piece of VMM memory around `address`, wherever it was allocated.
Result<UnsharedFd> export_piece(const Driver& driver, CUdeviceptr address);

}  // namespace weft::internal::cuda
