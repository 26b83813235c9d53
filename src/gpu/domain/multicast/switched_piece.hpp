// switched_piece.hpp: a rank's piece of VMM memory that all ranks bind to one multicast object. All ranks' pieces have one
// size. The ranks take the steps together: a step begins when all ranks have ended the one before.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>

#include "src/drivers/cuda/vmm.hpp"
#include "src/gpu/domain/kernel_set.hpp"
#include "src/gpu/domain/multicast/multicast_post.hpp"

namespace weft::internal::cuda {

enum class SwitchStep : uint8_t { create, add, bind, map };

// A place behind the switch.
struct SwitchedMemory {
    uint64_t token = 0;  // the same on all ranks if the bytes have one place; 0: they are not behind the switch
    std::byte* address = nullptr;  // for multimem instructions
};
// A token's lower bits are an offset, in memory of up to 1 TiB.
inline constexpr int switched_offset_bits = 40;

// Thread-bound. Destroyed when no kernel of any rank uses it; that may wait for the device.
class SwitchedPiece {
  public:
    // The piece around the bytes. Empty: other memory, several pieces, or too long. Some context must be current.
    static std::optional<VmmPiece> around(const Driver& driver, const void* address, size_t bytes);

    SwitchedPiece() = default;
    explicit SwitchedPiece(VmmPiece piece) : piece_(piece) {}
    // created: the first rank's entry, behind its first step. The context must be current. May wait for the device.
    Status take(SwitchStep step, const Context& context, int ranks, int rank, const MulticastEntry& created);
    // The first rank's entry, behind its first step.
    const MulticastEntry& entry() const { return post_.entry(); }
    const VmmPiece& piece() const { return piece_; }
    // Behind the last step: the address for multimem instructions of the piece's first byte.
    CUdeviceptr address() const { return object_.address(); }

  private:
    static constexpr int creator = 0;

    VmmPiece piece_ = {};
    MulticastPost post_;
    MulticastObject object_;
};

}  // namespace weft::internal::cuda
