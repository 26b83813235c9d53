// api_shared.cpp: the fake driver: memory and events that processes share: cuIpc, virtual memory management.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/fake_cuda/memory.hpp"
#include "tests/fake_cuda/multicast.hpp"
#include "tests/fake_cuda/work.hpp"

using namespace weft::internal::fake;

namespace {

constexpr size_t granularity = vmm_page;
constexpr uint64_t memory_magic = 0x6970636d656d, event_magic = 0x697063657674, fabric_magic = 0x666162726963;

// The content of a handle's 64 bytes.
struct IpcContent {
    uint64_t magic;
    int64_t process;
    int64_t fd;  // in that process
    uint64_t id;
};

// The content of a fabric handle's 64 bytes. Simulated hosts are processes of one machine.
struct FabricContent {
    IpcContent memory;
    unsigned clique;
};
static_assert(sizeof(FabricContent) <= sizeof(CUmemFabricHandle));

bool in_clique(unsigned clique) {
    const Setting& setting = world().setting;
    for (int device = 0; device < setting.gpus; ++device)
        if (const unsigned* own = setting.clique_of(device); own != nullptr && *own == clique) return true;
    return false;
}

// The other process's descriptor, opened here; -1: it has ended, or we may not.
int open_there(const IpcContent& content) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", int(content.process), int(content.fd));
    return open(path, O_RDWR | O_CLOEXEC);
}

// Null: its process has ended, or no device here is in its clique.
std::shared_ptr<Physical> adopt_fabric(const void* handle) {
    FabricContent content;
    std::memcpy(&content, handle, sizeof content);
    if (content.memory.magic != fabric_magic || !in_clique(content.clique)) return nullptr;
    const int fd = open_there(content.memory);
    auto physical = fd < 0 ? nullptr : adopt_physical(fd);
    if (fd >= 0) close(fd);
    if (!physical || physical->id != content.memory.id) return nullptr;
    physical->fabric = true;
    return physical;
}

bool lies(int device, int owner) { return world().setting.peer(device, owner) == 2; }

CUresult check_properties(const CUmemAllocationProp* properties) {
    if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    const unsigned types = properties->requestedHandleTypes;
    const int device = properties->location.id;
    constexpr unsigned known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
    if ((types & ~known) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    const Setting& setting = world().setting;
    if ((types & CU_MEM_HANDLE_TYPE_FABRIC) != 0) {
        if (setting.clique_of(device) == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
        if (setting.imex == 0) return CUDA_ERROR_NOT_PERMITTED;
    }
    if (setting.attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1) == 0 ||
        (types != 0 &&
         setting.attribute(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1) == 0))
        return CUDA_ERROR_NOT_SUPPORTED;
    return check_device(device);
}

}  // namespace

extern "C" {

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
    FAKE_ENTER(IpcGetMemHandle);
    std::lock_guard lock(world().mutex);
    const Range* range = memory().find(uintptr_t(address));
    if (range == nullptr || range->kind != Range::Kind::device) return CUDA_ERROR_INVALID_VALUE;
    std::memset(handle, 0, sizeof *handle);
    const IpcContent content{memory_magic, getpid(), range->physical->fd, range->physical->id};
    std::memcpy(handle, &content, sizeof content);
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
    FAKE_ENTER(IpcOpenMemHandle);
    FAKE_CURRENT(context);
    if (const CUresult early = check_unsafe(); early != CUDA_SUCCESS) return early;
    IpcContent content;
    std::memcpy(&content, &handle, sizeof content);
    if (content.magic != memory_magic || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
    if (content.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
    std::lock_guard lock(world().mutex);
    const std::string key(handle.reserved, sizeof handle.reserved);
    for (auto& [base, range] : memory().ranges) {
        if (range.kind != Range::Kind::imported || range.imported_from != key || range.context != context) continue;
        ++range.opened;
        *address = base;
        return CUDA_SUCCESS;
    }
    const int fd = open_there(content);
    const auto physical = fd < 0 ? nullptr : adopt_physical(fd);
    if (fd >= 0) close(fd);
    // The number may be another memory's by now.
    if (!physical || physical->id != content.id) return CUDA_ERROR_INVALID_VALUE;
    if (physical->device != context->device && world().setting.peer(context->device, physical->device) == 0)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    const uintptr_t base = map_shared(*physical, lies(context->device, physical->device));
    if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    Range range{.kind = Range::Kind::imported,
                .base = base,
                .bytes = physical->bytes,
                .context = context,
                .physical = physical};
    range.buffer = world().next_id++;
    range.imported_from = key;
    memory().ranges[base] = range;
    *address = base;
    return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
    FAKE_ENTER(IpcCloseMemHandle);
    FAKE_CURRENT(context);
    if (const CUresult early = check_unsafe(); early != CUDA_SUCCESS) return early;
    wait_all(outstanding(context));
    std::lock_guard lock(world().mutex);
    const auto found = memory().ranges.find(uintptr_t(address));
    if (found == memory().ranges.end() || found->second.kind != Range::Kind::imported) return CUDA_ERROR_INVALID_VALUE;
    if (--found->second.opened > 0) return CUDA_SUCCESS;
    make_inaccessible(found->first, whole_pages(found->second.bytes));
    memory().ranges.erase(found);
    return CUDA_SUCCESS;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event) {
    FAKE_ENTER(IpcGetEventHandle);
    std::lock_guard lock(world().mutex);
    const auto found = world().events.find(event);
    if (found == world().events.end() || found->second->shared == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    std::memset(handle, 0, sizeof *handle);
    const IpcContent content{event_magic, getpid(), found->second->fd, 0};
    std::memcpy(handle, &content, sizeof content);
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
    FAKE_ENTER(IpcOpenEventHandle);
    FAKE_CURRENT(context);
    IpcContent content;
    std::memcpy(&content, &handle, sizeof content);
    if (content.magic != event_magic) return CUDA_ERROR_INVALID_VALUE;
    if (content.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
    const int fd = open_there(content);
    if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
    void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        close(fd);
        return CUDA_ERROR_INVALID_VALUE;
    }
    auto made = std::make_shared<Event>();
    made->context = context;
    made->flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    made->fd = fd;
    made->shared = static_cast<SharedEvent*>(page);
    made->imported = true;
    *event = reinterpret_cast<CUevent>(made.get());
    std::lock_guard lock(world().mutex);
    world().events[*event] = made;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags) {
    FAKE_ENTER(MemGetAllocationGranularity);
    *bytes = granularity;
    return check_properties(properties);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long flags) {
    FAKE_ENTER(MemCreate);
    if (const CUresult early = check_properties(properties); early != CUDA_SUCCESS) return early;
    if (bytes == 0 || bytes % granularity != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard lock(world().mutex);
    const auto physical = make_physical(bytes, properties->location.id, properties->requestedHandleTypes);
    if (!physical) return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = world().next_id++;
    memory().handles[*handle] = {physical};
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    FAKE_ENTER(MemRelease);
    std::lock_guard lock(world().mutex);
    const auto found = memory().handles.find(handle);
    if (found == memory().handles.end()) return CUDA_ERROR_INVALID_VALUE;
    if (--found->second.references == 0) memory().handles.erase(found);
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr, unsigned long long flags) {
    FAKE_ENTER(MemAddressReserve);
    if (bytes == 0 || bytes % granularity != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    // Aligned to the granularity, as the real ones are.
    char* base = static_cast<char*>(
        mmap(nullptr, bytes + granularity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (base == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    const size_t skipped = (granularity - reinterpret_cast<uintptr_t>(base) % granularity) % granularity;
    if (skipped > 0) munmap(base, skipped);
    if (skipped < granularity) munmap(base + skipped + bytes, granularity - skipped);
    std::lock_guard lock(world().mutex);
    const uintptr_t start = reinterpret_cast<uintptr_t>(base + skipped);
    memory().ranges[start] = {.kind = Range::Kind::reserved, .base = start, .bytes = bytes, .context = nullptr};
    *address = start;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
    FAKE_ENTER(MemAddressFree);
    std::lock_guard lock(world().mutex);
    const auto found = memory().ranges.find(uintptr_t(address));
    if (found == memory().ranges.end() || found->second.kind != Range::Kind::reserved || found->second.bytes != bytes)
        return CUDA_ERROR_INVALID_VALUE;
    const auto piece = memory().pieces.lower_bound(uintptr_t(address));
    if (piece != memory().pieces.end() && piece->first < uintptr_t(address) + bytes) return CUDA_ERROR_INVALID_VALUE;
    memory().ranges.erase(found);
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    FAKE_ENTER(MemMap);
    std::lock_guard lock(world().mutex);
    const auto found = memory().handles.find(handle);
    const Range* range = memory().find(uintptr_t(address));
    if (found == memory().handles.end() || range == nullptr || range->kind != Range::Kind::reserved || flags != 0 ||
        offset != 0 || bytes == 0 || !is_complete(*found->second.physical) || bytes % granularity != 0 ||
        bytes > found->second.physical->bytes || uintptr_t(address) % granularity != 0 ||
        bytes > range->base + range->bytes - uintptr_t(address))
        return CUDA_ERROR_INVALID_VALUE;
    const auto next = memory().pieces.lower_bound(uintptr_t(address));
    if (memory().find_piece(uintptr_t(address)) != nullptr ||
        (next != memory().pieces.end() && next->first < uintptr_t(address) + bytes))
        return CUDA_ERROR_INVALID_VALUE;
    memory().pieces[uintptr_t(address)] = {bytes, offset, found->second.physical, {}, world().next_id++, handle};
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
    FAKE_ENTER(MemUnmap);
    if (const CUresult early = check_unsafe(); early != CUDA_SUCCESS) return early;
    std::lock_guard lock(world().mutex);
    const auto found = memory().pieces.find(uintptr_t(address));
    if (found == memory().pieces.end() || found->second.bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
    forget_copies(found->second);
    make_inaccessible(uintptr_t(address), bytes);
    memory().pieces.erase(found);
    return CUDA_SUCCESS;
}

}  // extern "C"

namespace {

CUresult set_access(uintptr_t address, Piece& piece, const CUmemAccessDesc* access, size_t count) {
    if (piece.physical->team != nullptr) return open_multicast(address, piece, access, count);
    bool wrong = false;
    for (size_t i = 0; i < count; ++i) {
        const int device = access[i].location.id;
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || check_device(device) != CUDA_SUCCESS)
            return CUDA_ERROR_INVALID_VALUE;
        if (piece.physical->fabric && world().setting.clique_of(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
        if (!piece.physical->fabric && device != piece.physical->device &&
            world().setting.peer(device, piece.physical->device) == 0)
            return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
        if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
            piece.devices.insert(device);
            wrong |= piece.physical->imported && lies(device, piece.physical->device);
        } else {
            piece.devices.erase(device);
        }
    }
    if (piece.devices.empty()) {
        make_inaccessible(address, piece.bytes);
        return CUDA_SUCCESS;
    }
    void* at = reinterpret_cast<void*>(address);
    const int sharing = wrong ? MAP_PRIVATE : MAP_SHARED;
    if (mmap(at, piece.bytes, PROT_READ | PROT_WRITE, sharing | MAP_FIXED, piece.physical->fd, off_t(piece.offset)) !=
        at)
        return CUDA_ERROR_OUT_OF_MEMORY;
    // The context that the range's facts are attributed to.
    if (Range* range = memory().find(address); range->context == nullptr)
        range->context = &world().devices[size_t(piece.physical->device)]->context;
    return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

// Of whole pieces, side by side.
CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t count) {
    FAKE_ENTER(MemSetAccess);
    std::lock_guard lock(world().mutex);
    auto& pieces = memory().pieces;
    const uintptr_t begin = uintptr_t(address);
    uintptr_t end = begin;
    for (auto each = pieces.find(begin); each != pieces.end() && each->first == end && end < begin + bytes; ++each)
        end += each->second.bytes;
    if (bytes == 0 || end != begin + bytes) return CUDA_ERROR_INVALID_VALUE;
    for (auto each = pieces.find(begin); each != pieces.end() && each->first < end; ++each)
        if (const CUresult result = set_access(each->first, each->second, access, count); result != CUDA_SUCCESS)
            return result;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
    FAKE_ENTER(MemGetAccess);
    std::lock_guard lock(world().mutex);
    const auto* piece = memory().find_piece(uintptr_t(address));
    if (piece == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    *flags =
        piece->second.devices.count(location->id) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* to, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                      unsigned long long flags) {
    FAKE_ENTER(MemExportToShareableHandle);
    std::lock_guard lock(world().mutex);
    const auto found = memory().handles.find(handle);
    if (found == memory().handles.end() || flags != 0 || (found->second.physical->handle_types & type) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    const Physical& physical = *found->second.physical;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
        const FabricContent content{{fabric_magic, getpid(), physical.fd, physical.id},
                                    *world().setting.clique_of(physical.device)};
        std::memset(to, 0, sizeof(CUmemFabricHandle));
        std::memcpy(to, &content, sizeof content);
        return CUDA_SUCCESS;
    }
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
    const int fd = fcntl(found->second.physical->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    std::memcpy(to, &fd, sizeof fd);
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* from,
                                        CUmemAllocationHandleType type) {
    FAKE_ENTER(MemImportFromShareableHandle);
    FAKE_CURRENT(context);  // a real driver may need one, which CUDA does not say
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && type != CU_MEM_HANDLE_TYPE_FABRIC)
        return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard lock(world().mutex);
    std::shared_ptr<Physical> physical;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
        if (world().setting.imex == 0) return CUDA_ERROR_NOT_PERMITTED;
        physical = adopt_fabric(from);
    } else {
        physical = adopt_physical(int(reinterpret_cast<intptr_t>(from)));
    }
    if (!physical) return CUDA_ERROR_INVALID_DEVICE;  // as the real one says to a stranger's descriptor
    *handle = world().next_id++;
    memory().handles[*handle] = {physical};
    return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
    FAKE_ENTER(MemRetainAllocationHandle);
    std::lock_guard lock(world().mutex);
    const auto* piece = memory().find_piece(reinterpret_cast<uintptr_t>(address));
    if (piece == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *handle = piece->second.handle;
    const auto [found, fresh] = memory().handles.try_emplace(*handle, Handle{piece->second.physical});
    if (!fresh) ++found->second.references;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
    FAKE_ENTER(MemGetAllocationPropertiesFromHandle);
    std::lock_guard lock(world().mutex);
    const auto found = memory().handles.find(handle);
    if (found == memory().handles.end()) return CUDA_ERROR_INVALID_VALUE;
    *properties = {};
    properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties->location.id = found->second.physical->device;
    properties->requestedHandleTypes = CUmemAllocationHandleType(found->second.physical->handle_types);
    return CUDA_SUCCESS;
}

CUresult cuMemGetHandleForAddressRange(void* to, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
                                       unsigned long long flags) {
    FAKE_ENTER(MemGetHandleForAddressRange);
    FAKE_CURRENT(context);
    std::lock_guard lock(world().mutex);
    if (world().setting.attribute(context->device, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0) == 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    constexpr unsigned long long over_pcie = 1;
    if (type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || uintptr_t(address) % 4096 != 0 || bytes % 4096 != 0 ||
        flags > (world().setting.version >= 12080 ? over_pcie : 0))
        return CUDA_ERROR_INVALID_VALUE;
    // From the begin of a file only: a real dma-buf begins at the address.
    const Range* range = memory().find(uintptr_t(address));
    if (range == nullptr || (range->kind != Range::Kind::device && range->kind != Range::Kind::reserved))
        return CUDA_ERROR_INVALID_VALUE;
    const Physical* physical = range->physical.get();
    size_t offset = uintptr_t(address) - range->base, left = whole_pages(range->bytes) - offset;
    if (range->kind == Range::Kind::reserved) {
        const auto* piece = memory().find_piece(uintptr_t(address));
        if (piece == nullptr) return CUDA_ERROR_INVALID_VALUE;
        physical = piece->second.physical.get();
        offset = uintptr_t(address) - piece->first + piece->second.offset;
        left = piece->first + piece->second.bytes - uintptr_t(address);
    }
    if (offset != 0 || bytes > left) return CUDA_ERROR_INVALID_VALUE;
    const int fd = fcntl(physical->fd, F_DUPFD_CLOEXEC, 0);
    std::memcpy(to, &fd, sizeof fd);
    return fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

}  // extern "C"
