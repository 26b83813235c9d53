// domain_exports.cpp: how a rank exports its memory to the others of its host with each method (domain.hpp), and how it
// maps their exports.
#include <unistd.h>

#include <cstring>
#include <utility>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/gpu/domain/domain_memory.hpp"
#include "src/gpu/domain/passed_memory.hpp"

namespace weft::internal::cuda {

namespace {

// A stopped process does not pass its descriptor. It is asked again after other ranks of this thread have had their
// turn, until the deadline of joining.
constexpr int64_t fetching_patience_us = 200'000;

// Where the other processes find a rank's memory. Ranks of the same process use the address; 0: nothing was exported.
struct DomainExport {
    uint64_t address;
    IpcExport exported;
    bool shared;  // whether `exported` is valid
};
static_assert(sizeof(DomainExport) <= Segment::oob_value_bytes);
// The export of the descriptor method.
struct DescriptorExport {
    uint64_t address;
    FdServerAddress fd_server;
    uint64_t fds_id;
};
static_assert(sizeof(DescriptorExport) <= Segment::oob_value_bytes);

}  // namespace

Status Domain::export_memory() {
    switch (method_) {
        case ShareMethod::ipc: return export_by_ipc();
        case ShareMethod::descriptors: return export_by_descriptor();
        case ShareMethod::some_host:
        case ShareMethod::host: return export_host_memory();
    }
    __builtin_unreachable();
}

// Allocates memory for this method and initialises it before peers see it.
Status Domain::prepare_memory(ExportableMemory::ExportMethod way) {
    WEFT_TRY(take_memory(way));
    // The message slots and the memory behind them are not cleared: nothing there is read before it is written.
    WEFT_TRY(fill_async(kernels_->driver(), memory_.address(), 0, layout().message_slots, stream_.handle()));
    bases_[size_t(rank_)] = memory_.address();
    return write_probe();
}

// A failure here leaves the communicator without a domain, but keeps its host ranks: the reason is reported to all.
Status Domain::export_by_ipc() {
    DomainExport offer{};
    const Status made = [&]() -> Status {
        WEFT_TRY(begin());
        WEFT_TRY(prepare_memory(ExportableMemory::ExportMethod::ipc));
        if (!one_process()) {
            // Without an export the others cannot map it, which does not prevent the domain by itself.
            auto exported = export_ipc(kernels_->driver(), memory_.address());
            offer.shared = bool(exported);
            if (exported)
                offer.exported = *exported;
            else
                WEFT_LOG_RANK(rank_, info, init, "{}", exported.status().sentence());
        }
        offer.address = memory_.address();
        return ok();
    }();
    if (!made) obstacle_ = made.sentence();
    return post(exports, &offer, sizeof offer);
}

// Allocates other memory, because cuMemAlloc memory has no descriptor. A failure here only rules out this method.
Status Domain::export_by_descriptor() {
    DescriptorExport offer{};
    const Status made = [&]() -> Status {
        WEFT_TRY(prepare_memory(ExportableMemory::ExportMethod::descriptor));
        auto fd_server = FdServer::of_process();
        if (!fd_server) return fd_server.take_status();
        const VmmPiece all{memory_.address(), memory_.bytes()};
        auto posted = post_memory(**fd_server, kernels_->driver(), {&all, 1});
        if (!posted) return posted.take_status();
        fd_server_ = std::move(*fd_server);
        fds_id_ = *posted;
        offer = {memory_.address(), fd_server_->address(), fds_id_};
        return ok();
    }();
    if (!made) not_exported_ = made.sentence();
    return post(exports, &offer, sizeof offer);
}

// The last methods: one shared-memory segment, made by the host's first rank, for all host-backed ranks. The first rank
// exports it first. A rank exports after it has written its own part. The memory of the other ranks stays exported as
// before.
Status Domain::export_host_memory() {
    PeerMemory offer{};
    const Status made = [&]() -> Status {
        const std::vector<int> host_backed = this->host_backed();
        const size_t each = this->layout().programs, bytes = each * host_backed.size();
        if (leads()) {
            auto memory = SharedMemory::create("weft-device-fallback_reason", bytes);
            if (!memory) return memory.take_status();
            host_memory_ = std::move(*memory);
            WEFT_TRY(host_memory_.back(0, bytes));
            offer = {getpid(), host_memory_.fd(), process_token(), host_memory_.inode()};
        } else {
            memcpy(&offer, find(members_[0], exports), sizeof offer);
            if (offer.process == 0)
                return fail(error::gpu_peer_access, "rank {} has no host memory to export", members_[0]);
        }
        auto places = HostFallbackMemory::of(offer, kernels_->context());
        if (!places) return places.take_status();
        host_fallback_ = std::move(*places);
        auto address = host_fallback_->address();
        if (!address) return address.take_status();
        for (size_t place = 0; place < host_backed.size(); ++place)
            bases_[size_t(host_backed[place])] = *address + each * place;
        return write_probe();
    }();
    if (!made) {
        obstacle_ = made.sentence();
        offer = {};
    }
    return post(exports, &offer, sizeof offer);
}

// WEFT_GPU_PATH skips the methods before the requested one.
Status Domain::refused_by_option(int peer) const {
    const GpuPath path = segment_->header().agreed.gpu_path;
    if (path == GpuPath::host) return fail(error::gpu_peer_access, "WEFT_GPU_PATH is host");
    if (path == GpuPath::descriptors && method_ == ShareMethod::ipc && !segment_->same_process(rank_, peer))
        return fail(error::gpu_peer_access, "WEFT_GPU_PATH is descriptors");
    return ok();
}

Status Domain::map(int peer) {
    WEFT_TRY(refused_by_option(peer));
    uint64_t address = 0;  // the first field of every export
    const std::byte* const found = find(peer, exports);
    memcpy(&address, found, sizeof address);
    if (address == 0) return fail(error::gpu_peer_access, "rank {} could not export its device memory", peer);
    if (segment_->same_process(rank_, peer)) {
        WEFT_TRY(map_of_process(peer));
        bases_[size_t(peer)] = address;
        return ok();
    }
    const Context& context = kernels_->context();
    if (method_ == ShareMethod::descriptors) {
        DescriptorExport offer;
        memcpy(&offer, found, sizeof offer);
        auto import = fetch_memory(context, offer.fd_server, offer.fds_id, now_us() + fetching_patience_us);
        if (!import) return import.take_status();
        bases_[size_t(peer)] = import->address();
        imports_.push_back(std::move(*import));
        return ok();
    }
    DomainExport offer;
    memcpy(&offer, found, sizeof offer);
    if (!offer.shared)
        return fail(error::gpu_peer_access,
                    "CUDA does not export it to other processes (its log at INFO has the error)");
    auto mapping = IpcMapping::open(context, offer.exported);
    if (!mapping) return mapping.take_status();
    bases_[size_t(peer)] = mapping->address();
    mappings_.push_back(std::move(*mapping));
    return ok();
}

Status Domain::map_of_process(int peer) {
    const int device = segment_->row(peer).device.ordinal;
    if (device == segment_->row(rank_).device.ordinal) return ok();
    auto other = Context::retain(kernels_->driver(), device);
    if (!other) return other.take_status();
    WEFT_TRY(kernels_->context().enable_peer(*other));
    peer_contexts_.push_back(std::move(*other));
    return ok();
}

}  // namespace weft::internal::cuda
