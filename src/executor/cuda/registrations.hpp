// registrations.hpp: buffers that users have registered, mapped by the ranks of other processes, so that their kernels
// use them in place. Nobody waits for it: until all have mapped a buffer, messages in it are staged.
//
// Each rank has a table in memory of all processes. Its entries are the rank's: what it has registered. Its replies say
// where it has mapped what others have. An entry is closed before its buffer may be freed; it can be opened anew when
// all others have replied that they have unmapped it.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "src/base/host_group.hpp"
#include "src/base/shared_memory.hpp"
#include "src/drivers/cuda/ipc.hpp"
#include "src/executor/cuda/kernel_set.hpp"

namespace weft::cuda {

// Thread-bound to the rank, but for serve().
class Registrations {
  public:
    static constexpr int entries_max = 32;  // allocations of a rank

    // Before the ranks join their devices: rank 0 makes the tables. Nothing where all ranks are of one process.
    Registrations(std::shared_ptr<HostGroup> group, int rank, std::shared_ptr<const KernelSet> kernels);
    // They have joined. From here on serve() may run.
    void open();
    // Nobody maps its buffers any more, as far as their processes live and answer within two seconds. After the last
    // serve().
    ~Registrations();

    // The allocation around the buffer; several buffers of one share its entry. Fails for memory that other processes
    // cannot map, and when all entries are taken.
    Result<int> add(const void* address, size_t bytes);
    // Returns when the others have unmapped it, as above. Calls that use it must have ended.
    void remove(int entry);
    // Where kernels of each rank address this buffer, by rank; false: not all do. `mapped`: ranks of this process
    // reach it.
    bool find(const void* address, size_t bytes, bool mapped, std::byte* (&at)[ranks_max]) const;

    // Maps what others have registered since, and unmaps what they have closed: that waits for the device, so only
    // where nothing of ours runs (`idle`), for a kernel of ours may wait for the rank that has closed it. For one
    // thread at a time, the service thread as a rule.
    void serve(bool idle);

  private:
    struct Table;
    struct Own {
        uintptr_t base = 0;
        size_t bytes = 0;
        uint64_t state = 0;  // counts; odd: open
        int users = 0;
    };
    struct Mapped {
        uint64_t state = 0;
        std::shared_ptr<IpcMapping> mapping;
    };

    bool elsewhere(int peer) const { return group_->row(peer).process != group_->row(rank_).process; }
    Table& table(int rank) const;
    bool answered(int entry) const;
    void close(int entry);
    void await_answers(int entry) const;
    bool serve(int owner, bool idle);
    std::shared_ptr<IpcMapping> map(int owner, const CUipcMemHandle& handle) const;

    std::shared_ptr<HostGroup> group_;
    int rank_, ranks_;
    std::shared_ptr<const KernelSet> kernels_;
    SharedMemory made_;                     // rank 0's
    std::shared_ptr<SharedMemory> tables_;  // null: no other process, or none that could be shared
    std::array<Own, entries_max> own_{};
    std::vector<uint64_t> changes_;                        // by rank: that serve() has seen
    std::vector<std::array<Mapped, entries_max>> mapped_;  // by owner: serve()'s
};

}  // namespace weft::cuda
