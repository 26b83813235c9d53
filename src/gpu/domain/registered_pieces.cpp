#include "src/gpu/domain/registered_pieces.hpp"

#include "src/drivers/cuda/stream.hpp"
#include "src/gpu/domain/passed_memory.hpp"
#include "src/segment/liveness.hpp"

namespace weft::internal::cuda {

Result<std::vector<VmmPiece>> RegisteredPieces::find(const void* address, size_t bytes) const {
    const Driver& driver = kernels_->driver();
    auto pieces = vmm_pieces(driver, reinterpret_cast<CUdeviceptr>(address), bytes, most);
    if (!pieces) return pieces.take_status();
    for (int peer = 0; peer < segment_->ranks(); ++peer) {
        const int device = segment_->row(peer).gpu.facts.ordinal;
        if (peer == rank_ || !segment_->same_process(rank_, peer) || device == kernels_->context().device()) continue;
        auto opened = vmm_opened(driver, *pieces, device);
        if (!opened) return opened.take_status();
        if (!*opened)
            return fail(error::gpu_registrations,
                        "cuMemSetAccess has not opened this VMM memory for device {} of rank {}, which is in this "
                        "process",
                        device, peer);
    }
    return pieces;
}

Status RegisteredPieces::exportable(const void* address, size_t bytes) const {
    const ContextScope scope(kernels_->context());
    const RelaxedCapture relaxed(kernels_->driver());
    auto pieces = find(address, bytes);
    if (!pieces || one_process(*segment_)) return pieces.take_status();
    for (const VmmPiece& piece : *pieces)
        if (auto descriptor = export_piece(kernels_->driver(), piece.address); !descriptor)
            return descriptor.take_status();
    return ok();
}

Result<uint64_t> RegisteredPieces::post(std::span<const VmmPiece> pieces, RegistrationTable& own) {
    static_assert(most <= passed_pieces_max);
    if (!fd_server_) {
        auto fd_server = FdServer::of_process();
        if (!fd_server) return fd_server.take_status();
        fd_server_ = std::move(*fd_server);
        own.fd_server = fd_server_->address();
    }
    return post_memory(*fd_server_, kernels_->driver(), pieces);
}

void RegisteredPieces::keep(int entry, uint64_t fds_id) {
    if (fds_id == 0) return;
    const std::lock_guard lock(mutex_);
    posted_[entry] = fds_id;
}

void RegisteredPieces::withdraw(int entry) {
    const std::lock_guard lock(mutex_);
    if (const auto set = posted_.extract(entry)) fd_server_->withdraw(set.mapped());
}

// Descriptors are scarce: a set is withdrawn when all ranks have mapped its memory.
void RegisteredPieces::withdraw_fetched(const RegistrationMapper& mapper) {
    const RegistrationTables& tables = mapper.tables();
    const auto fetched = [&](int entry) {
        const uint64_t state = tables.entry(rank_, entry).state.load(std::memory_order_relaxed);
        for (int peer = 0; peer < segment_->ranks(); ++peer) {
            const RegistrationReply& reply = tables.reply(rank_, entry, peer);
            const bool replied = reply.state.load(std::memory_order_acquire) == state &&
                                 reply.wanted.load(std::memory_order_acquire) == 0;
            if (!segment_->same_process(rank_, peer) && !replied &&
                tables.of(peer).left.load(std::memory_order_acquire) == 0 && !mapper.without_tables(peer) &&
                Liveness(*segment_).alive(peer))
                return false;
        }
        return true;
    };
    const std::lock_guard lock(mutex_);
    std::erase_if(posted_, [&](const auto& set) {
        if (!fetched(set.first)) return false;
        fd_server_->withdraw(set.second);
        return true;
    });
}

}  // namespace weft::internal::cuda
