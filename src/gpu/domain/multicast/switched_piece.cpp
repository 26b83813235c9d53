#include "src/gpu/domain/multicast/switched_piece.hpp"

#include <utility>

#include "src/drivers/cuda/pointer.hpp"

namespace weft::internal::cuda {

std::optional<VmmPiece> SwitchedPiece::around(const Driver& driver, const void* address, size_t bytes) {
    const auto facts = describe_pointer(driver, address);
    if (!facts || facts->kind != MemoryKind::vmm) return {};
    const auto pieces = vmm_pieces(driver, reinterpret_cast<CUdeviceptr>(address), bytes, 1);
    if (!pieces || (*pieces)[0].bytes > size_t(1) << switched_offset_bits) return {};
    return (*pieces)[0];
}

Status SwitchedPiece::take(SwitchStep step, const Context& context, int ranks, int rank,
                           const MulticastEntry& created) {
    switch (step) {
        case SwitchStep::create: {
            if (rank != creator) return ok();
            auto bytes = MulticastObject::size_for(context.driver(), ranks, piece_.bytes);
            if (!bytes) return bytes.take_status();
            if (*bytes != piece_.bytes)
                return fail(error::gpu_peer_access, "a multicast object has {} bytes, and the memory {}", *bytes,
                            piece_.bytes);
            auto object = post_.create(context, ranks, *bytes);
            if (object) object_ = std::move(*object);
            return object.take_status();
        }
        case SwitchStep::add: {
            if (rank != creator) {
                auto object = fetch_multicast(context, creator, created);
                if (!object) return object.take_status();
                object_ = std::move(*object);
            }
            return object_.add_device();
        }
        case SwitchStep::bind: post_.withdraw(); return object_.bind_piece(piece_.address);
        case SwitchStep::map: return object_.map();
    }
    return ok();
}

}  // namespace weft::internal::cuda
