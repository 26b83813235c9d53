// registration_mapper.hpp: maps the registrations of ranks of other processes for one rank, and unmaps closed ones.
// Both may wait for the device, and so for a rank that waits for a reply. Therefore a thread of the process does both.
// The thread lives as long as it has tasks.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "src/base/shared_memory.hpp"
#include "src/gpu/domain/kernel_set.hpp"
#include "src/gpu/domain/registration_table.hpp"
#include "src/segment/oob_store.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal::cuda {

// Its tasks share the ownership, because the thread may be busy when the rank has left. Thread-bound to that thread
// unless stated otherwise.
class RegistrationMapper : public std::enable_shared_from_this<RegistrationMapper> {
  public:
    RegistrationMapper(std::shared_ptr<Segment> group, int rank, std::shared_ptr<const KernelSet> kernels,
                       std::shared_ptr<SharedMemory> tables);

    // The table of a rank. Thread-safe.
    RegistrationTable& table(int owner) const { return tables_.of(owner); }
    const RegistrationTables& tables() const { return tables_; }
    // Whether the rank could not map the tables and never replies. Otherwise it may still map them. Thread-safe.
    bool without_tables(int rank) const {
        return table(rank).here.load(std::memory_order_relaxed) == 0 &&
               OobStore(*segment_).get(rank, registration_without_tables_key) != nullptr;
    }
    // Lets the thread look at all entries soon. Thread-safe.
    void serve_soon();
    // Whether the thread must look again although nothing has changed: it ended early, or a late process must be asked
    // again. Thread-safe.
    bool take_due();
    // Lets the thread unmap everything after its other tasks, and mark the table as left. Thread-safe.
    void leave_soon();

  private:
    struct MappedAllocation {
        uint64_t state = 0;
        std::shared_ptr<const void> mapping = {};
        CUdeviceptr base = 0;
        bool late = false;  // the process has not passed its descriptors in time
    };
    // A process that did not answer is left alone until `until_us`, longer each time. All mappers of this process share
    // this state: otherwise each would wait for it again, and delay all later mappings.
    struct Lateness {
        int64_t until_us = 0, wait_us = 0;
    };

    void serve();
    void serve(int owner, int entry);
    void leave();
    Result<MappedAllocation> map(int owner, const RegistrationEntry& theirs);
    Result<MappedAllocation> map_ipc(const CUipcMemHandle& handle) const;
    Result<MappedAllocation> map_pieces(const FdServerAddress& from, uint64_t fds_id, int64_t patience_us) const;

    std::shared_ptr<Segment> segment_;
    int rank_;
    std::shared_ptr<const KernelSet> kernels_;
    RegistrationTables tables_;
    std::atomic<bool> queued_{false}, again_{false};
    std::vector<std::vector<MappedAllocation>> mapped_;  // by owner and entry
    std::vector<std::shared_ptr<Lateness>> late_;        // by owner: of its process
    std::atomic<int64_t> retry_us_{INT64_MAX};           // the earliest time to ask one of these again
};

}  // namespace weft::internal::cuda
