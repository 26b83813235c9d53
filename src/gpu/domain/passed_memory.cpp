#include "src/gpu/domain/passed_memory.hpp"

#include <cassert>
#include <cstring>

namespace weft::internal::cuda {

Result<uint64_t> post_memory(FdServer& fd_server, const Driver& driver, std::span<const VmmPiece> pieces) {
    assert(pieces.size() <= passed_pieces_max);
    PassedFds content;
    std::vector<uint64_t> sizes;
    for (const VmmPiece& piece : pieces) {
        auto descriptor = export_piece(driver, piece.address);
        if (!descriptor) return descriptor.take_status();
        content.descriptors.push_back(std::move(*descriptor));
        sizes.push_back(piece.bytes);
    }
    const auto text = std::as_bytes(std::span(sizes));
    content.text.assign(text.begin(), text.end());
    return fd_server.post(std::move(content));
}

Result<VmmMemory> fetch_memory(const Context& context, const FdServerAddress& from, uint64_t fds_id,
                               int64_t deadline_us) {
    auto fetched = fetch_fds(from, fds_id, deadline_us);
    if (!fetched) return fetched.take_status();
    std::vector<uint64_t> sizes(fetched->descriptors.size());
    if (sizes.empty() || fetched->text.size() != sizes.size() * sizeof(uint64_t))
        return fail(error::shm_descriptor, "its process sent something other than the sizes of its pieces");
    memcpy(sizes.data(), fetched->text.data(), fetched->text.size());
    return VmmMemory::import(context, fetched->descriptors, sizes);
}

}  // namespace weft::internal::cuda
