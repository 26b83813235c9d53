// registration_table.hpp: the registrations of a rank, and where it has mapped those of others. The tables of all ranks
// are side by side in a shared-memory segment that rank 0 makes.
#pragma once
#include <atomic>

#include "src/drivers/cuda/ipc.hpp"
#include "src/gpu/kernels/kernel_arguments.hpp"
#include "src/net/fd_passing.hpp"

namespace weft::internal::cuda {

inline constexpr int registrations_max = 32;  // allocations of a rank; for VMM memory, buffers
// Where rank 0 publishes the tables, and where a rank publishes that it could not map them.
inline constexpr uint64_t registration_oob_key = 0x7265676973746572,
                          registration_without_tables_key = registration_oob_key + 1;

// Each rank writes its own table, and all ranks read all tables.
struct RegistrationTable {
    struct RegistrationEntry {
        // Written (release) after the other fields, which stay until all ranks have replied to a later state. Counts
        // up; odd: open.
        std::atomic<uint64_t> state;
        CUipcMemHandle handle;
        uint64_t fds_id;  // of the pieces (passed_memory.hpp); 0: cuMemAlloc memory
    };
    struct RegistrationReply {
        std::atomic<uint64_t> address;  // of the allocation in this rank's kernels; 0: not mapped (release)
        std::atomic<uint64_t> state;    // the state of the entry that this reply answers (release)
        std::atomic<uint32_t>
            wanted;  // 1: the set was late and will be asked for again, so it must stay posted (release)
    };
    std::atomic<uint64_t> changes;  // of the entries
    std::atomic<uint32_t> here;     // 1: the rank has mapped the tables and replies
    std::atomic<uint32_t> left;     // 1: the rank has unmapped everything and replies no more (release)
    FdServerAddress fd_server;      // of the rank's process, once a set is posted
    RegistrationEntry entries[registrations_max];
    RegistrationReply replies[ranks_max][registrations_max];  // by owner

    static constexpr bool is_open(uint64_t state) { return (state & 1) != 0; }
};

}  // namespace weft::internal::cuda
