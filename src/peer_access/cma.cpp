#include "src/peer_access/cma.hpp"

#include <sys/uio.h>

#include <cerrno>

#include "src/base/log.hpp"

namespace weft::internal {

// The peer has just posted its arrival flag, so the pid is still its own. For another process to get it, the kernel
// would have to use up all process numbers within this operation.
static Status failed(const char* what, int rank, int other, int pid, int error) {
    const FailureFacts facts{.rank = other, .peer = rank};
    if (error == ESRCH)
        return fail(error::rank_died, "rank {} (pid {}) died while rank {} {} its buffers", other, pid, rank, what)
            .about(facts);
    return fail(error::shm_cma,
                "rank {} could not {} the buffers of rank {} (pid {}): {}. With WEFT_CROSS_MEMORY 0 Weft copies them "
                "through shared memory",
                rank, what, other, pid, errno_text(error))
        .about(facts);
}

bool Cma::probe() const {
    for (int other = 0; other < host_->ranks(); ++other)
        if (!probe(other)) return false;
    return true;
}

bool Cma::probe(int other) const {
    const RankRow& row = host_->row(other);
    uint64_t seen = 0;
    const Status status = read(other, &seen, row.token_address, sizeof seen);
    if (status && seen == row.process) return true;
    WEFT_LOG_RANK(rank_, info, shm, "messages are staged: {}",
                  status ? fmt::format("process {} is not rank {}'s here (another pid namespace)", row.pid, other)
                         : status.sentence());
    return false;
}

void Cma::agree(bool all_can) {
    state_ = all_can ? State::ready : State::refused;
    if (rank_ == 0)
        WEFT_LOG_RANK(rank_, info, shm, "the kernel {} middle-sized messages between the processes",
                      all_can ? "copies" : "does not copy");
}

bool Cma::remote_memory_valid() const {
    // Orders our position, or the bytes that we have read, before the check. Pairs with the fence in
    // Communicator::leave_buffers().
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return !host_->aborted();
}

Status Cma::read(int rank, void* to, uint64_t address, size_t bytes) const {
    for (size_t done = 0; done < bytes;) {
        const iovec local{static_cast<std::byte*>(to) + done, bytes - done};
        const iovec remote{reinterpret_cast<void*>(address + done), bytes - done};
        const ssize_t copied = process_vm_readv(host_->row(rank).pid, &local, 1, &remote, 1, 0);
        if (copied <= 0) return failed("read", rank_, rank, host_->row(rank).pid, errno);
        done += size_t(copied);
    }
    return ok();
}

Status Cma::write(int rank, const void* from, uint64_t address, size_t bytes) const {
    for (size_t done = 0; done < bytes;) {
        const iovec local{const_cast<std::byte*>(static_cast<const std::byte*>(from)) + done, bytes - done};
        const iovec remote{reinterpret_cast<void*>(address + done), bytes - done};
        const ssize_t copied = process_vm_writev(host_->row(rank).pid, &local, 1, &remote, 1, 0);
        if (copied <= 0) return failed("write", rank_, rank, host_->row(rank).pid, errno);
        done += size_t(copied);
    }
    return ok();
}

}  // namespace weft::internal
