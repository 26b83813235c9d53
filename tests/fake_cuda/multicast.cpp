#include "tests/fake_cuda/multicast.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "src/gpu/kernels/multicast/multicast_copies.hpp"

namespace weft::internal::fake {

namespace {

using cuda::multicast_granule;
using cuda::MulticastCopies;

static_assert(multicast_granule == vmm_page && MulticastTeam::members_max == cuda::ranks_max);

// The bound memory of a member, mapped here; 0: its process has ended, or the number is another memory's.
uintptr_t map_member(const MulticastTeam::Member& member, size_t& bytes) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", member.process, member.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return 0;
    const auto physical = adopt_physical(fd);
    close(fd);
    if (!physical || physical->id != member.id) return 0;
    bytes = whole_pages(physical->bytes) + 4096;
    return map_shared(*physical);
}

// A page that the kernels read.
bool write_directory(uintptr_t at, const MulticastCopies& copies) {
    void* const page = reinterpret_cast<void*>(at);
    if (mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != page) return false;
    *static_cast<MulticastCopies*>(page) = copies;
    return mprotect(page, 4096, PROT_READ) == 0;
}

}  // namespace

bool map_team(Physical& physical) {
    void* const page = mmap(nullptr, sizeof(MulticastTeam), PROT_READ | PROT_WRITE, MAP_SHARED, physical.fd, 0);
    if (page == MAP_FAILED) return false;
    physical.team = static_cast<MulticastTeam*>(page);
    return true;
}

bool is_complete(const Physical& physical) {
    if (physical.team == nullptr) return true;
    const TeamLock lock(*physical.team);
    return physical.team->count == physical.team->wanted;
}

CUresult open_multicast(uintptr_t address, Piece& piece, const CUmemAccessDesc* access, size_t count) {
    MulticastTeam& team = *piece.physical->team;
    std::vector<MulticastTeam::Member> members;
    {
        const TeamLock lock(team);
        for (size_t i = 0; i < count; ++i) {
            const int device = access[i].location.id;
            if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || team.find(device) == nullptr)
                return CUDA_ERROR_INVALID_VALUE;
            piece.devices.insert(device);
        }
        members.assign(team.members, team.members + team.count);
    }
    const bool bound = std::all_of(members.begin(), members.end(), [&](const MulticastTeam::Member& member) {
        return member.id != 0 && member.offset == 0 && member.bytes >= piece.bytes;
    });
    if (!bound || !piece.copies.empty()) return CUDA_ERROR_ILLEGAL_STATE;
    // Sums come in the order of devices, whatever the order was in which they were added.
    std::sort(members.begin(), members.end(),
              [](const auto& one, const auto& other) { return one.device < other.device; });
    MulticastCopies copies{int(members.size()), {}};
    for (size_t i = 0; i < members.size(); ++i) {
        size_t bytes = 0;
        const uintptr_t base = map_member(members[i], bytes);
        if (base == 0) return CUDA_ERROR_INVALID_VALUE;
        piece.copies.emplace_back(base, bytes);
        copies.at[i] = reinterpret_cast<std::byte*>(base + members[i].memory_offset);
    }
    for (size_t at = 0; at < piece.bytes; at += multicast_granule) {
        if (!write_directory(address + at, copies)) return CUDA_ERROR_OUT_OF_MEMORY;
        for (int i = 0; i < copies.count; ++i) copies.at[i] += multicast_granule;
    }
    if (Range* range = memory().find(address); range->context == nullptr)
        range->context = &world().devices[size_t(access[0].location.id)]->context;
    return CUDA_SUCCESS;
}

void forget_copies(const Piece& piece) {
    for (const auto& [base, bytes] : piece.copies) munmap(reinterpret_cast<void*>(base), bytes);
}

}  // namespace weft::internal::fake
