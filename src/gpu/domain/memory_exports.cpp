#include "src/gpu/domain/memory_exports.hpp"

#include <unistd.h>

#include <cstring>
#include <utility>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/base/process_token.hpp"
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
static_assert(sizeof(DomainExport) <= OobEntry::value_bytes);
// The export of the descriptor method.
struct DescriptorExport {
    uint64_t address;
    FdServerAddress fd_server;
    uint64_t fds_id;
};
static_assert(sizeof(DescriptorExport) <= OobEntry::value_bytes);

}  // namespace

Status MemoryExports::post(const std::vector<int>& host_backed, Status& made) {
    switch (entries_.method()) {
        case ShareMethod::ipc: return post_ipc(made);
        case ShareMethod::descriptors: return post_descriptor(made);
        case ShareMethod::some_host:
        case ShareMethod::host: return post_host_memory(host_backed, made);
    }
    __builtin_unreachable();
}

// Allocates memory of this kind and initialises it before peers see it.
Status MemoryExports::allocate(ExportableMemory::ExportMethod way) {
    WEFT_TRY(memory_.allocate(way));
    memory_.bases()[size_t(ranks_.rank)] = memory_.own().address();
    WEFT_TRY(test_.clear());
    return test_.write();
}

Status MemoryExports::post_ipc(Status& made) {
    DomainExport entry{};
    if (made) made = allocate(ExportableMemory::ExportMethod::ipc);
    if (made) {
        entry.address = memory_.own().address();
        if (!ranks_.one_process()) {
            // Without an export the others cannot map it, which does not prevent the domain by itself.
            auto exported = export_ipc(memory_.kernels().driver(), memory_.own().address());
            entry.shared = bool(exported);
            if (exported)
                entry.exported = *exported;
            else
                WEFT_LOG_RANK(ranks_.rank, info, init, "{}", exported.status().sentence());
        }
    }
    return entries_.post(JoinEntries::exports, &entry, sizeof entry);
}

// Allocates other memory, because cuMemAlloc memory has no descriptor.
Status MemoryExports::post_descriptor(Status& made) {
    DescriptorExport entry{};
    if (made)
        made = [&]() -> Status {
            WEFT_TRY(allocate(ExportableMemory::ExportMethod::descriptor));
            auto fd_server = FdServer::of_process();
            if (!fd_server) return fd_server.take_status();
            const VmmPiece all{memory_.own().address(), memory_.own().bytes()};
            auto posted = post_memory(**fd_server, memory_.kernels().driver(), {&all, 1});
            if (!posted) return posted.take_status();
            fd_server_ = std::move(*fd_server);
            fds_id_ = *posted;
            entry = {memory_.own().address(), fd_server_->address(), fds_id_};
            return ok();
        }();
    return entries_.post(JoinEntries::exports, &entry, sizeof entry);
}

// One shared-memory segment, made by the host's first rank, for all host-backed ranks. The first rank exports it first.
// A rank exports after it has written its own part. The memory of the other ranks stays exported as before.
Status MemoryExports::post_host_memory(const std::vector<int>& host_backed, Status& made) {
    weft::internal::PeerMemory entry{};
    if (made)
        made = [&]() -> Status {
            const size_t each = memory_.layout().programs, bytes = each * host_backed.size();
            if (ranks_.leads()) {
                auto memory = SharedMemory::create("weft-device-fallback", bytes);
                if (!memory) return memory.take_status();
                host_memory_ = std::move(*memory);
                WEFT_TRY(host_memory_.back(0, bytes));
                entry = {getpid(), host_memory_.fd(), process_token(), host_memory_.inode()};
            } else {
                const int first = ranks_.members[0];
                memcpy(&entry, entries_.find(first, JoinEntries::exports), sizeof entry);
                if (entry.process == 0)
                    return fail(error::gpu_peer_access, "rank {} has no host memory to export", first);
            }
            auto pages = HostFallbackMemory::of(entry, memory_.kernels().context());
            if (!pages) return pages.take_status();
            host_fallback_ = std::move(*pages);
            auto address = host_fallback_->address();
            if (!address) return address.take_status();
            for (size_t place = 0; place < host_backed.size(); ++place)
                memory_.bases()[size_t(host_backed[place])] = *address + each * place;
            return test_.write();
        }();
    if (!made) entry = {};
    return entries_.post(JoinEntries::exports, &entry, sizeof entry);
}

void MemoryExports::withdraw() {
    if (fd_server_) fd_server_->withdraw(fds_id_);
    fd_server_ = nullptr;
}

void MemoryExports::unmap() {
    mappings_.clear();
    imports_.clear();
}

// WEFT_GPU_PATH skips the methods before the requested one.
Status MemoryExports::refused_by_option(int peer) const {
    const GpuPath path = ranks_.segment->header().agreed.gpu.path;
    if (path == GpuPath::host) return fail(error::gpu_peer_access, "WEFT_GPU_PATH is host");
    if (path == GpuPath::descriptors && entries_.method() == ShareMethod::ipc &&
        !ranks_.segment->same_process(ranks_.rank, peer))
        return fail(error::gpu_peer_access, "WEFT_GPU_PATH is descriptors");
    return ok();
}

Status MemoryExports::map(int peer) {
    WEFT_TRY(refused_by_option(peer));
    uint64_t address = 0;  // the first field of every export
    const std::byte* const found = entries_.find(peer, JoinEntries::exports);
    memcpy(&address, found, sizeof address);
    if (address == 0) return fail(error::gpu_peer_access, "rank {} could not export its device memory", peer);
    if (ranks_.segment->same_process(ranks_.rank, peer)) {
        WEFT_TRY(map_of_process(peer));
        memory_.bases()[size_t(peer)] = address;
        return ok();
    }
    const Context& context = memory_.kernels().context();
    if (entries_.method() == ShareMethod::descriptors) {
        DescriptorExport entry;
        memcpy(&entry, found, sizeof entry);
        auto import = fetch_memory(context, entry.fd_server, entry.fds_id, now_us() + fetching_patience_us);
        if (!import) return import.take_status();
        memory_.bases()[size_t(peer)] = import->address();
        imports_.push_back(std::move(*import));
        return ok();
    }
    DomainExport entry;
    memcpy(&entry, found, sizeof entry);
    if (!entry.shared)
        return fail(error::gpu_peer_access,
                    "CUDA does not export it to other processes (its log at INFO has the error)");
    auto mapping = IpcMapping::open(context, entry.exported);
    if (!mapping) return mapping.take_status();
    memory_.bases()[size_t(peer)] = mapping->address();
    mappings_.push_back(std::move(*mapping));
    return ok();
}

Status MemoryExports::map_of_process(int peer) {
    const int device = ranks_.segment->row(peer).gpu.facts.ordinal;
    if (device == ranks_.segment->row(ranks_.rank).gpu.facts.ordinal) return ok();
    auto other = Context::retain(memory_.kernels().driver(), device);
    if (!other) return other.take_status();
    WEFT_TRY(memory_.kernels().context().enable_peer(*other));
    peer_contexts_.push_back(std::move(*other));
    return ok();
}

}  // namespace weft::internal::cuda
