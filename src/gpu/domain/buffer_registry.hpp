// buffer_registry.hpp: buffers that users have registered. Ranks of other processes map them, so that kernels use them
// in place. Registration waits for no rank: messages in a buffer are staged until all ranks have mapped it.
//
// Each rank has a table (registration_table.hpp) that all processes map. Its entries are the rank's registrations. Its
// replies say where the rank has mapped the registrations of others. An entry is closed before its buffer may be freed.
// It can be opened again when all others have replied that they have unmapped it. Mapping and unmapping may wait for
// the device, so a thread of the process does both (registration_mapper.hpp). cuMemAlloc memory is passed by a cuIpc
// handle. Each piece of VMM memory has a file descriptor, posted (fd_passing.hpp) until all others have fetched it.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "src/base/shared_memory.hpp"
#include "src/gpu/domain/kernel_set.hpp"
#include "src/gpu/domain/registered_pieces.hpp"
#include "src/gpu/domain/registration_mapper.hpp"
#include "src/gpu/domain/registration_table.hpp"
#include "src/gpu/kernels/kernel_arguments.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal::cuda {

// Thread-bound to the rank, except look().
class BufferRegistry {
  public:
    static constexpr int entries_max = RegistrationTables::entries_max;

    // Made before the ranks join their devices. Rank 0 makes the tables, unless all ranks are in one process.
    BufferRegistry(std::shared_ptr<Segment> group, int rank, std::shared_ptr<const KernelSet> kernels);
    // Called when the ranks have joined. look() may run from then on.
    void open();
    // Called after the last look(). Waits two seconds for others to unmap our buffers, and ten to unmap theirs.
    ~BufferRegistry();

    // buffer: used in place whenever it is a call's buffer. window: not in captures, for a graph may outlive the window.
    enum class RegistrationUse { buffer, window };
    // Registers the allocation around the buffer, or its pieces. Several buffers of one allocation share its entry.
    // Fails for memory that other processes cannot map, or if all entries are taken.
    Result<int> add(const void* address, size_t bytes, RegistrationUse use);
    // Whether add() would accept VMM memory, as far as this process can tell.
    Status fits(const void* address, size_t bytes) const { return pieces_.exportable(address, bytes); }
    // Calls that use it must have ended. Waits two seconds for others to unmap it; weftTimeout: call it again.
    Status remove(int entry, RegistrationUse use);
    // The same in two steps that do not wait: the others may map the buffer until removed() is true.
    void begin_to_remove(int entry, RegistrationUse use);
    bool removed(int entry);
    // The ranks that still map it then.
    std::vector<int> unanswered(int entry) const;
    // The open registration around these bytes; -1: none. use: `window` finds those of windows too.
    int entry_around(const void* address, size_t bytes, RegistrationUse use = RegistrationUse::buffer) const;
    // The address of a registered buffer in the kernels of each rank; false: some rank has not mapped it. `mapped`:
    // ranks of this process can access it, as is known for registered VMM memory.
    bool find(const void* address, size_t bytes, bool mapped, std::byte* (&at)[ranks_max],
              RegistrationUse use = RegistrationUse::buffer) const;

    // The location of an allocation, as it is sent to other ranks.
    struct RegisteredAddress {
        int32_t entry;
        uint64_t state;   // the state of the entry
        uint64_t offset;  // the offset of the buffer in the allocation
    };
    RegisteredAddress registered_address(int entry, const void* address) const;
    // The address in our kernels of a peer's registration. Empty: not known yet (see look()). Null: it cannot be mapped
    // here, or is no longer registered.
    std::optional<std::byte*> reach(int owner, const RegisteredAddress& place) const;

    // Starts to map new registrations of others and to unmap closed ones. Thread-safe: the service thread calls it.
    void look();

  private:
    struct OwnEntry {
        uintptr_t base = 0;
        size_t bytes = 0;
        uint64_t state = 0;          // counts up; odd: open
        int users = 0, buffers = 0;  // `buffers` of the `users` are registered buffers, the others windows
        int ending = 0;              // of the users of an open entry: begin_to_remove() has been called
        bool vmm = false;
    };

    // An entry that is not used, or a further one. Fails if there are too many, or no shared memory is left.
    Result<int> unused_entry();
    Status grow();
    void close(int entry);
    bool await_answers(int entry, int64_t until_us) const;

    std::shared_ptr<Segment> segment_;
    int rank_, ranks_;
    std::shared_ptr<const KernelSet> kernels_;
    bool trusts_;                                 // nobody asks where the buffers of calls lie
    SharedMemory made_;                           // made by rank 0
    std::shared_ptr<RegistrationMapper> mapper_;  // null: no other process, or no tables
    RegisteredPieces pieces_;
    std::vector<OwnEntry> own_;              // by entry
    std::multimap<uintptr_t, int> by_base_;  // the open entries
    size_t longest_ = 0;                     // the most bytes that an entry has had
    std::mutex looking_;
    std::vector<uint64_t> looked_;  // by rank: the last seen change; guarded by `looking_`
};

}  // namespace weft::internal::cuda
