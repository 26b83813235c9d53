// registered_pieces.hpp: the VMM memory of a rank's registrations: its pieces, and a file descriptor for each of them.
// The descriptors of a registration are one set, which is posted (fd_passing.hpp) until all others have fetched it.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "src/drivers/cuda/vmm.hpp"
#include "src/gpu/domain/kernel_set.hpp"
#include "src/gpu/domain/registration_mapper.hpp"
#include "src/net/fd_passing.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal::cuda {

// Thread-bound to the rank, except withdraw_fetched().
class RegisteredPieces {
  public:
    static constexpr size_t most = 512;  // of a buffer: each piece is a file descriptor until all ranks have mapped it

    RegisteredPieces(std::shared_ptr<Segment> group, int rank, std::shared_ptr<const KernelSet> kernels)
        : segment_(std::move(group)), rank_(rank), kernels_(std::move(kernels)) {}

    // The pieces of a buffer. Fails if a rank of this process cannot access them.
    Result<std::vector<VmmPiece>> find(const void* address, size_t bytes) const;
    // Whether the buffer could be registered, as far as this process can tell.
    Status exportable(const void* address, size_t bytes) const;
    // Posts the descriptors of the pieces. The result is the id of the set. `own`: this rank's table.
    Result<uint64_t> post(std::span<const VmmPiece> pieces, RegistrationTable& own);
    // The set belongs to this entry, which is open; 0: the entry has no set.
    void keep(int entry, uint64_t fds_id);
    void withdraw(int entry);
    // Withdraws the sets that all others have fetched. One thread at a time.
    void withdraw_fetched(const RegistrationMapper& mapper);

  private:
    std::shared_ptr<Segment> segment_;
    int rank_;
    std::shared_ptr<const KernelSet> kernels_;
    std::shared_ptr<FdServer> fd_server_;  // null until a set is posted
    std::mutex mutex_;
    std::map<int, uint64_t> posted_;  // by entry: its set; guarded by `mutex_`
};

}  // namespace weft::internal::cuda
