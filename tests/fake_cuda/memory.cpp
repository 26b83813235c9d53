#include "tests/fake_cuda/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tests/fake_cuda/multicast.hpp"

namespace weft::internal::fake {

namespace {

constexpr uint64_t magic = 0x66616b6563756461;

struct Facts {
    uint64_t magic, bytes, handle_types, id;
    int64_t device;
};

const char* name_of(Range::Kind kind) {
    switch (kind) {
        case Range::Kind::device: return "cuMemAlloc";
        case Range::Kind::managed: return "cuMemAllocManaged";
        case Range::Kind::pool: return "cuMemAllocAsync";
        case Range::Kind::pinned: return "cuMemHostAlloc";
        case Range::Kind::registered: return "cuMemHostRegister";
        case Range::Kind::imported: return "cuIpcOpenMemHandle";
        case Range::Kind::reserved: return "cuMemAddressReserve";
    }
    return "memory";
}

}  // namespace

size_t whole_pages(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

Physical::~Physical() {
    if (team != nullptr) munmap(team, sizeof *team);
    if (fd >= 0) close(fd);
    std::lock_guard lock(world().mutex);
    if (!imported && team == nullptr && size_t(device) < world().devices.size())
        world().devices[size_t(device)]->used_bytes -= bytes;
}

std::shared_ptr<Physical> make_physical(size_t bytes, int device, uint64_t handle_types, const char* name) {
    World& all = world();
    std::lock_guard lock(all.mutex);
    Device* const place = device == multicast_device ? nullptr : all.devices[size_t(device)].get();
    if (place && place->used_bytes + bytes > all.setting.memory_bytes) return nullptr;
    const int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0) return nullptr;
    const Facts facts{magic, bytes, handle_types, all.next_id++, device};
    const size_t data = whole_pages(bytes);
    if (ftruncate(fd, off_t(data + 4096)) != 0 ||
        pwrite(fd, &facts, sizeof facts, off_t(data)) != ssize_t(sizeof facts)) {
        close(fd);
        return nullptr;
    }
    auto physical = std::make_shared<Physical>();
    physical->bytes = bytes;
    physical->device = device;
    physical->handle_types = handle_types;
    physical->id = facts.id;
    physical->fd = fd;
    if (place) place->used_bytes += bytes;
    if (!place && !map_team(*physical)) return nullptr;
    return physical;
}

std::shared_ptr<Physical> adopt_physical(int fd) {
    struct stat state;
    Facts facts;
    if (fstat(fd, &state) != 0 || state.st_size < 4096) return nullptr;
    if (pread(fd, &facts, sizeof facts, state.st_size - 4096) != ssize_t(sizeof facts) || facts.magic != magic)
        return nullptr;
    auto physical = std::make_shared<Physical>();
    physical->imported = true;
    physical->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    physical->bytes = facts.bytes;
    physical->device = int(facts.device);
    physical->handle_types = facts.handle_types;
    physical->id = facts.id;
    if (physical->fd < 0) return nullptr;
    if (physical->device == multicast_device) return map_team(*physical) ? physical : nullptr;
    return size_t(physical->device) < world().devices.size() ? physical : nullptr;
}

Memory& memory() {
    static Memory* all = new Memory;
    return *all;
}

Range* Memory::find(uintptr_t address) {
    auto next = ranges.upper_bound(address);
    if (next == ranges.begin()) return nullptr;
    Range& range = std::prev(next)->second;
    return address - range.base < range.bytes ? &range : nullptr;
}

std::pair<const uintptr_t, Piece>* Memory::find_piece(uintptr_t address) {
    auto next = pieces.upper_bound(address);
    if (next == pieces.begin()) return nullptr;
    auto& piece = *std::prev(next);
    return address - piece.first < piece.second.bytes ? &piece : nullptr;
}

uintptr_t map_shared(const Physical& physical, bool wrong) {
    const size_t bytes = whole_pages(physical.bytes);
    void* base = mmap(nullptr, bytes + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return 0;
    const int sharing = wrong ? MAP_PRIVATE : MAP_SHARED;
    if (mmap(base, bytes, PROT_READ | PROT_WRITE, sharing | MAP_FIXED, physical.fd, 0) == MAP_FAILED) return 0;
    return reinterpret_cast<uintptr_t>(base);
}

void make_inaccessible(uintptr_t base, size_t bytes) {
    mmap(reinterpret_cast<void*>(base), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
         0);
}

CUresult check_access(Context* context, uintptr_t address, size_t bytes, bool& pageable) {
    std::lock_guard lock(world().mutex);
    pageable = false;
    const Range* range = memory().find(address);
    if (range == nullptr) {
        pageable = true;
        return CUDA_SUCCESS;
    }
    if (bytes > range->bytes - (address - range->base)) return CUDA_ERROR_INVALID_VALUE;
    if (range->kind == Range::Kind::reserved) {
        while (bytes > 0) {
            const auto* piece = memory().find_piece(address);
            if (piece == nullptr || piece->second.devices.count(context->device) == 0) return CUDA_ERROR_INVALID_VALUE;
            const size_t part = std::min(bytes, piece->second.bytes - (address - piece->first));
            address += part;
            bytes -= part;
        }
    } else if (range->kind == Range::Kind::device && range->context != context) {
        // Copies between devices need no peer access: the driver stages them.
        return CUDA_SUCCESS;
    }
    return CUDA_SUCCESS;
}

void forget_memory() {
    std::lock_guard lock(world().mutex);
    for (const auto& [base, range] : memory().ranges)
        if (range.kind != Range::Kind::registered) make_inaccessible(base, whole_pages(range.bytes));
    for (const auto& [base, piece] : memory().pieces) forget_copies(piece);
    memory().pieces.clear();
    memory().handles.clear();
    memory().bound.clear();
    memory().ranges.clear();
}

void list_memory_leaks(std::string& to) {
    for (const auto& [base, range] : memory().ranges)
        to += std::to_string(range.bytes) + " bytes of " + name_of(range.kind) + "\n";
    for (const auto& [base, piece] : memory().pieces) to += std::to_string(piece.bytes) + " bytes of cuMemMap\n";
    for (const auto& [number, handle] : memory().handles)
        to += "a handle of " + std::to_string(handle.physical->bytes) + " bytes\n";
    for (const auto& [place, physical] : memory().bound)
        to += std::to_string(physical->bytes) + " bytes that are bound to a multicast object\n";
}

}  // namespace weft::internal::fake
