// registration_mapper.hpp: maps for a rank what ranks of other processes have registered, and unmaps what they have
// closed. Both may wait for the device, and so for a rank that waits for an answer: so a thread of the process's own does
// them, which lives as long as there is something to do.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "src/base/shared_memory.hpp"
#include "src/gpu/domain/kernel_set.hpp"
#include "src/gpu/domain/registration_table.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal::cuda {

// Kept by its tasks, too: the thread may be busy when the rank has left. Thread-bound to that thread, but for what says
// otherwise.
class RegistrationMapper : public std::enable_shared_from_this<RegistrationMapper> {
  public:
    RegistrationMapper(std::shared_ptr<Segment> group, int rank, std::shared_ptr<const KernelSet> kernels,
                       std::shared_ptr<SharedMemory> tables);

    // Thread-safe.
    RegistrationTable& table(int owner) const { return reinterpret_cast<RegistrationTable*>(tables_->data())[owner]; }
    // Lets the thread look at all entries, soon. Thread-safe.
    void serve_soon();
    // Whether it is to look again although nothing has changed: it ended before it had seen everything, or whose server was
    // late is to be asked once more. Thread-safe.
    bool take_due();
    // Lets the thread unmap everything, behind what it has to do, and say so in the table. Thread-safe.
    void leave_soon();

  private:
    struct MappedAllocation {
        uint64_t state = 0;
        std::shared_ptr<const void> mapping = {};
        CUdeviceptr base = 0;
        bool late = false;  // its set has not come in time
    };
    // Of a process that did not answer: until when it is left alone, the longer the oftener it was late. All mappers of
    // ours know the same: else each would wait for it anew, and what others want mapped behind them all.
    struct Lateness {
        int64_t until_us = 0, wait_us = 0;
    };

    void serve();
    void serve(int owner, int entry);
    void leave();
    Result<MappedAllocation> map(int owner, const RegistrationTable::RegistrationEntry& theirs);
    Result<MappedAllocation> map_ipc(const CUipcMemHandle& handle) const;
    Result<MappedAllocation> map_pieces(const FdServerAddress& from, uint64_t fds_id, int64_t patience_us) const;

    std::shared_ptr<Segment> segment_;
    int rank_;
    std::shared_ptr<const KernelSet> kernels_;
    std::shared_ptr<SharedMemory> tables_;
    std::atomic<bool> queued_{false}, again_{false};
    std::vector<std::array<MappedAllocation, BufferRegistry::entries_max>> mapped_;  // by owner
    std::vector<std::shared_ptr<Lateness>> late_;                                    // by owner: its process's
    std::atomic<int64_t> retry_us_{INT64_MAX};  // when the first of these is asked again
};

}  // namespace weft::internal::cuda
