// memory.hpp: the fake driver's memory: which range of addresses is what. Device memory is a memfd, mapped, so that
// other processes map it for real; ranges that were freed stay, without access.
#pragma once
#include <cuda.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/fake_cuda/world.hpp"

namespace weft::internal::fake {

struct MulticastTeam;

// A memfd with room for a page of facts behind the data, for an importing process.
struct Physical {
    size_t bytes = 0;
    int device = 0;
    uint64_t handle_types = 0;
    uint64_t id = 0;
    int fd = -1;
    bool imported = false;
    bool fabric = false;            // imported by a fabric handle: `device` is a number of another host
    MulticastTeam* team = nullptr;  // of a multicast object, whose memory is the team's alone (multicast.hpp)
    ~Physical();
};
// Null if the machine refuses. `name`: of the file; that of device memory tells it from the host's in /proc/self/maps.
std::shared_ptr<Physical> make_physical(size_t bytes, int device, uint64_t handle_types,
                                        const char* name = "fake_cuda");
inline constexpr int multicast_device = -1;  // in place of the device of a multicast object
// Of a descriptor of such a memfd, which is left open. Null if it is none.
std::shared_ptr<Physical> adopt_physical(int fd);
size_t whole_pages(size_t bytes);

// The use of a part of the address space.
struct Range {
    enum class Kind { device, managed, pool, pinned, registered, imported, reserved };
    Kind kind;
    uintptr_t base = 0;
    size_t bytes = 0;
    Context* context = nullptr;
    std::shared_ptr<Physical> physical = {};  // null: registered, reserved
    uint64_t buffer = 0;
    int opened = 1;                  // of imported: how often
    std::string imported_from = {};  // the handle's bytes
};

// A piece mapped into a reserved range.
struct Piece {
    size_t bytes;
    size_t offset;  // in the physical memory
    std::shared_ptr<Physical> physical;
    std::set<int> devices;  // with access
    uint64_t buffer;
    CUmemGenericAllocationHandle handle;                    // that it was mapped by, also when that has been released
    std::vector<std::pair<uintptr_t, size_t>> copies = {};  // of a multicast mapping: of the members' memory
};

struct Handle {
    std::shared_ptr<Physical> physical;
    int references = 1;
};

// Under the world's lock.
struct Memory {
    std::map<uintptr_t, Range> ranges;
    std::map<uintptr_t, Piece> pieces;
    std::map<CUmemGenericAllocationHandle, Handle> handles;
    // By multicast object's mark and device: the memory that this process has bound.
    std::map<std::pair<uint64_t, int>, std::shared_ptr<Physical>> bound;
    Range* find(uintptr_t address);
    std::pair<const uintptr_t, Piece>* find_piece(uintptr_t address);
};
Memory& memory();

// Maps `bytes` of it, with an inaccessible page behind. `wrong`: other processes do not see this mapping's writes. 0:
// refused.
uintptr_t map_shared(const Physical& physical, bool wrong = false);
// The addresses stay taken; using them faults.
void make_inaccessible(uintptr_t base, size_t bytes);

// Whether the device may touch all of [address, address + bytes). An address that is unknown is host memory of which
// only the host copies.
CUresult check_access(Context* context, uintptr_t address, size_t bytes, bool& pageable);

// For reset(): all forgotten.
void forget_memory();
void list_memory_leaks(std::string& to);

}  // namespace weft::internal::fake
