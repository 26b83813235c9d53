// multicast.hpp: the fake driver's multicast objects: a team of devices in shared memory, and the memory that each has
// bound. A mapping of an object is a directory of several mappings of the bound memory
// (src/gpu/kernels/multicast/multicast_copies.hpp). Plain loads and stores there fault, or find the directory.
#pragma once
#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "tests/fake_cuda/memory.hpp"

namespace weft::internal::fake {

inline constexpr size_t vmm_page = size_t(2) << 20;

// Lies at the beginning of the object's memfd, for all processes. The driver's lock is not enough.
struct MulticastTeam {
    struct Member {
        int device;
        int process, fd;         // of the bound memory
        uint64_t id;             // of the bound memory; 0: nothing is bound
        uint64_t memory_offset;  // in that memory
        uint64_t offset, bytes;  // in the object
    };
    static constexpr int members_max = 72;
    std::atomic<uint32_t> locked;
    uint64_t mark;  // tells the object from those of other processes
    int wanted, count;
    Member members[members_max];

    Member* find(int device) {
        for (int i = 0; i < count; ++i)
            if (members[i].device == device) return &members[i];
        return nullptr;
    }
};

class TeamLock {
  public:
    explicit TeamLock(MulticastTeam& team) : team_(team) {
        while (team.locked.exchange(1, std::memory_order_acquire) != 0) {
        }
    }
    TeamLock(const TeamLock&) = delete;
    ~TeamLock() { team_.locked.store(0, std::memory_order_release); }

  private:
    MulticastTeam& team_;
};

// False: the machine refuses.
bool map_team(Physical& physical);
// Whether it is ordinary memory, or all devices of the team have been added: the real driver waits for that.
bool is_complete(const Physical& physical);
// cuMemSetAccess of a multicast mapping. Refused before all members have bound memory, which the real driver allows.
CUresult open_multicast(uintptr_t address, Piece& piece, const CUmemAccessDesc* access, size_t count);
// Unmaps what open_multicast() has mapped.
void forget_copies(const Piece& piece);

}  // namespace weft::internal::fake
