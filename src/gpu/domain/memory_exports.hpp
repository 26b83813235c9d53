// memory_exports.hpp: how a rank exports its memory to the others of its host with each method, and how it maps their
// exports. Thread-bound to the rank.
#pragma once
#include <memory>
#include <vector>

#include "src/base/shared_memory.hpp"
#include "src/drivers/cuda/ipc.hpp"
#include "src/drivers/cuda/vmm.hpp"
#include "src/gpu/domain/domain_memory.hpp"
#include "src/gpu/domain/join_entries.hpp"
#include "src/gpu/domain/reach/reach_test.hpp"
#include "src/net/fd_passing.hpp"

namespace weft::internal::cuda {

class MemoryExports {
  public:
    // All must outlive this object.
    MemoryExports(const DomainRanks& ranks, DomainMemory& memory, JoinEntries& entries, ReachTest& test)
        : ranks_(ranks), memory_(memory), entries_(entries), test_(test) {}

    // Allocates memory for the current method and posts its export. A failure in `made`, which may be one of an earlier
    // step, posts an empty export. host_backed: the ranks whose device memory is replaced.
    Status post(const std::vector<int>& host_backed, Status& made);
    // Maps a peer's export. A failure with weftTimeout: its process has not passed its descriptor yet.
    Status map(int peer);
    // Closes the posted descriptors: all ranks have fetched them, or never will.
    void withdraw();
    // Unmaps the memory of others. May wait for the device.
    void unmap();

  private:
    Status allocate(ExportableMemory::ExportMethod way);
    Status post_ipc(Status& made);
    Status post_descriptor(Status& made);
    Status post_host_memory(const std::vector<int>& host_backed, Status& made);
    Status refused_by_option(int peer) const;
    Status map_of_process(int peer);

    const DomainRanks& ranks_;
    DomainMemory& memory_;
    JoinEntries& entries_;
    ReachTest& test_;
    std::vector<Context> peer_contexts_;   // of devices in this process whose memory we access
    std::shared_ptr<FdServer> fd_server_;  // while the memory's entry is posted
    uint64_t fds_id_ = 0;
    SharedMemory host_memory_;                           // of the first rank, for all host-backed ranks
    std::shared_ptr<HostFallbackMemory> host_fallback_;  // the same, for this process's devices
    std::vector<IpcMapping> mappings_;                   // of other processes' memory, by either method
    std::vector<VmmMemory> imports_;
};

}  // namespace weft::internal::cuda
