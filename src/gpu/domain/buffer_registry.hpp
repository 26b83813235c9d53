// buffer_registry.hpp: buffers that users have registered, mapped by the ranks of other processes, so that their kernels
// use them in place. Whoever registers waits for nobody: until all have mapped a buffer, messages in it are staged.
//
// Each rank has a table in memory of all processes. Its entries are the rank's: what it has registered. Its replies say
// where it has mapped what others have. An entry is closed before its buffer may be freed; it can be opened anew when
// all others have replied that they have unmapped it. Mapping and unmapping may wait for the device, so they have a
// thread of the process's own, which lives as long as there is something to do.
// cuMemAlloc's memory is named by a cuIpc handle, which lies in the entry. Of VMM memory each piece has a file
// descriptor: those are posted (fd_passing.hpp) until all others have fetched them.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "src/base/shared_memory.hpp"
#include "src/drivers/cuda/vmm.hpp"
#include "src/gpu/domain/kernel_set.hpp"
#include "src/gpu/kernels/kernel_arguments.hpp"
#include "src/net/fd_passing.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal::cuda {

class RegistrationMapper;

// Thread-bound to the rank, but for look().
class BufferRegistry {
  public:
    static constexpr int entries_max = 32;     // allocations of a rank; of VMM memory, buffers
    static constexpr size_t pieces_max = 512;  // of a buffer: each is a file descriptor until all have mapped it

    // Before the ranks join their devices: rank 0 makes the tables. Nothing where all ranks are of one process.
    BufferRegistry(std::shared_ptr<Segment> group, int rank, std::shared_ptr<const KernelSet> kernels);
    // They have joined. From here on look() may run.
    void open();
    // After the last look(). Nobody maps our buffers any more, as far as all answer within two seconds, and we
    // nobody's, as far as the device is free within ten.
    ~BufferRegistry();

    // What an allocation is registered for: to be offered wherever it is a call's buffer, or as part of a window.
    enum class RegistrationUse { buffer, window };
    // The allocation around the buffer, or its pieces; several buffers of one share its entry. Fails for memory that
    // other processes cannot map, and when all entries are taken.
    Result<int> add(const void* address, size_t bytes, RegistrationUse use);
    // Whether VMM memory could be added, as far as this process tells.
    Status fits(const void* address, size_t bytes) const;
    // Calls that use it must have ended. Waits until the others have unmapped it, two seconds at most; after
    // weftTimeout it may be called again.
    Status remove(int entry, RegistrationUse use);
    // The same in two steps that wait for nobody: until removed() the others may still map it.
    void begin_to_remove(int entry, RegistrationUse use);
    bool removed(int entry);
    // Who still maps it then.
    std::vector<int> unanswered(int entry) const;
    // Where kernels of each rank address this registered buffer, by rank; false: not all do. `mapped`: ranks of this
    // process reach it, which is known already of registered VMM memory.
    bool find(const void* address, size_t bytes, bool mapped, std::byte* (&at)[ranks_max]) const;

    // Where an allocation of ours lies for ranks that are told, and where one of theirs lies for our kernels.
    struct RegisteredAddress {
        int32_t entry;
        uint64_t state;   // of the entry
        uint64_t offset;  // of the buffer in the allocation
    };
    RegisteredAddress registered_address(int entry, const void* address) const;
    // Nothing: it is not known yet (see look()); null: it cannot be mapped here, or is registered no more.
    std::optional<std::byte*> reach(int owner, const RegisteredAddress& place) const;

    // Lets what others have registered since be mapped, and what they have closed unmapped. Waits for nothing.
    // Thread-safe; the service thread does it now and then.
    void look();

  private:
    struct OwnEntry {
        uintptr_t base = 0;
        size_t bytes = 0;
        uint64_t state = 0;          // counts; odd: open
        int users = 0, buffers = 0;  // the latter among the former
        bool vmm = false;
    };

    void close(int entry);
    bool await_answers(int entry, int64_t until_us) const;
    // Pieces that ranks of this process reach.
    Result<std::vector<VmmPiece>> shared_pieces(const void* address, size_t bytes) const;
    Status post_pieces(const std::vector<VmmPiece>& pieces, uint64_t& fds_id);
    void withdraw(int entry);
    void withdraw_fetched();
    // It could not map them, and never replies. Else it may come to have them.
    bool without_tables(int peer) const;

    std::shared_ptr<Segment> segment_;
    int rank_, ranks_;
    std::shared_ptr<const KernelSet> kernels_;
    SharedMemory made_;                           // rank 0's
    std::shared_ptr<RegistrationMapper> mapper_;  // null: no other process, or none that could be shared
    std::array<OwnEntry, entries_max> own_{};
    std::shared_ptr<FdServer> fd_server_;                       // null until there is a set
    std::array<std::atomic<uint64_t>, entries_max> fds_ids_{};  // by entry, while they are posted; 0: none
    std::mutex looking_;
    std::vector<uint64_t> looked_;  // by rank: look()'s, by that lock
};

}  // namespace weft::internal::cuda
