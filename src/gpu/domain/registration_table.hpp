// registration_table.hpp: the registrations of all ranks, and where each rank has mapped those of others, in a
// shared-memory segment that rank 0 makes. The segment is sparse: a rank that registers more backs further chunks of its
// entries, and of the replies to them.
#pragma once
#include <atomic>
#include <cstddef>
#include <memory>

#include "src/base/shared_memory.hpp"
#include "src/drivers/cuda/ipc.hpp"
#include "src/gpu/kernels/kernel_arguments.hpp"
#include "src/net/fd_passing.hpp"

namespace weft::internal::cuda {

// Where rank 0 publishes the tables, and where a rank publishes that it could not map them.
inline constexpr uint64_t registration_oob_key = 0x7265676973746572,
                          registration_without_tables_key = registration_oob_key + 1;

struct RegistrationEntry {
    // Written (release) after the other fields, which stay until all ranks have replied to a later state. Counts up;
    // odd: open.
    std::atomic<uint64_t> state;
    CUipcMemHandle handle;
    uint64_t fds_id;  // of the pieces (passed_memory.hpp); 0: cuMemAlloc memory

    static constexpr bool is_open(uint64_t state) { return (state & 1) != 0; }
};
// Written by the rank that replies.
struct RegistrationReply {
    std::atomic<uint64_t> address;  // of the allocation in that rank's kernels; 0: not mapped (release)
    std::atomic<uint64_t> state;    // the state of the entry that this reply answers (release)
    std::atomic<uint32_t> wanted;   // 1: the set was late and will be asked for again, so it must stay posted (release)
};
// Each rank writes its own.
struct RegistrationTable {
    std::atomic<uint32_t> count;    // of its entries, which are backed (release); grows only
    std::atomic<uint64_t> changes;  // of the entries
    std::atomic<uint32_t> here;     // 1: the rank has mapped the tables and replies
    std::atomic<uint32_t> left;     // 1: the rank has unmapped everything and replies no more (release)
    FdServerAddress fd_server;      // of the rank's process, once a set is posted
};

// The tables as a process sees them. Thread-safe; the values are as above.
class RegistrationTables {
  public:
    static constexpr int chunk_entries = 64, chunks_max = 256;
    static constexpr int entries_max = chunk_entries * chunks_max;  // allocations of a rank; for VMM memory, buffers

    RegistrationTables(std::shared_ptr<SharedMemory> memory, int ranks) : memory_(std::move(memory)), ranks_(ranks) {}
    static constexpr size_t bytes(int ranks) {
        return head_bytes + chunk_bytes(ranks) * size_t(chunks_max) * size_t(ranks);
    }
    static Status back_heads(SharedMemory& memory) { return memory.back(0, head_bytes); }

    RegistrationTable& of(int rank) const { return reinterpret_cast<RegistrationTable*>(memory_->data())[rank]; }
    // The owner backs the chunk of an entry before it counts the entry.
    Status back(int owner, int entry) const {
        return memory_->back(head_bytes + chunk_bytes(ranks_) * chunk_number(owner, entry), chunk_bytes(ranks_));
    }
    RegistrationEntry& entry(int owner, int entry) const { return chunk(owner, entry).entries[entry % chunk_entries]; }
    RegistrationReply& reply(int owner, int entry, int of_rank) const {
        return chunk(owner, entry).replies[of_rank][entry % chunk_entries];
    }

  private:
    struct Chunk {
        RegistrationEntry entries[chunk_entries];
        RegistrationReply replies[ranks_max][chunk_entries];  // backed as far as there are ranks
    };
    static constexpr size_t page = 4096;
    static constexpr size_t head_bytes = (sizeof(RegistrationTable) * ranks_max + page - 1) / page * page;
    static constexpr size_t chunk_bytes(int ranks) {
        const size_t used = offsetof(Chunk, replies) + sizeof(Chunk::replies[0]) * size_t(ranks);
        return (used + page - 1) / page * page;
    }

    static size_t chunk_number(int owner, int entry) {
        return size_t(owner) * size_t(chunks_max) + size_t(entry / chunk_entries);
    }
    Chunk& chunk(int owner, int entry) const {
        return *reinterpret_cast<Chunk*>(memory_->data() + head_bytes +
                                         chunk_bytes(ranks_) * chunk_number(owner, entry));
    }

    std::shared_ptr<SharedMemory> memory_;
    int ranks_;
};

}  // namespace weft::internal::cuda
