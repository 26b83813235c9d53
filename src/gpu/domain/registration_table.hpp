// registration_table.hpp: what a rank tells the others of its registered buffers, and where it has mapped theirs: a table a
// rank, side by side in a segment of rank 0's.
#pragma once
#include <atomic>

#include "src/gpu/domain/buffer_registry.hpp"
#include "src/gpu/kernels/kernel_arguments.hpp"
#include "src/net/fd_passing.hpp"

namespace weft::internal::cuda {

// Each rank writes its own alone, all read all.
struct RegistrationTable {
    struct RegistrationEntry {
        // (release) after what follows, which stays until all have replied to another one. Counts; odd: open.
        std::atomic<uint64_t> state;
        CUipcMemHandle handle;
        uint64_t fds_id;  // of the pieces (passed_memory.hpp); 0: it is cuMemAlloc's memory
    };
    struct RegistrationReply {
        std::atomic<uint64_t> address;  // of the allocation, as this rank's kernels have it; 0: not mapped (release)
        std::atomic<uint64_t> state;    // of the entry, that this is the reply to (release)
        std::atomic<uint32_t> wanted;   // 1: the set was late and will be asked for again, so it stays (release)
    };
    std::atomic<uint64_t> changes;  // of the entries
    std::atomic<uint32_t> here;     // 1: the rank has the tables, and replies
    std::atomic<uint32_t> left;     // 1: it has unmapped everything, and replies no more (release)
    FdServerAddress fd_server;      // of the rank's process, once there is a set
    RegistrationEntry entries[BufferRegistry::entries_max];
    RegistrationReply replies[ranks_max][BufferRegistry::entries_max];  // by owner

    static constexpr bool is_open(uint64_t state) { return (state & 1) != 0; }
};

}  // namespace weft::internal::cuda
