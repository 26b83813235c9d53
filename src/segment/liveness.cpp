#include "src/segment/liveness.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "src/base/file.hpp"
#include "src/base/process_token.hpp"

namespace weft::internal {

uint64_t pid_namespace() {
    struct stat status {};
    return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

bool process_stopped(int pid) {
    // The state follows the process name, which may contain any character and ends at the last parenthesis.
    const std::string line = system_file(fmt::format("/proc/{}/stat", pid));
    const size_t end = line.rfind(')');
    return end != std::string::npos && end + 2 < line.size() && (line[end + 2] == 'T' || line[end + 2] == 't');
}

bool Liveness::alive(int rank) const {
    if (segment_->row(rank).process == process_token()) return true;
    if (segment_->settled() && !segment_->local(rank))
        return segment_->row(rank).state.load(std::memory_order_acquire) != RankState::dead;
    // A lost lock does not prove death: a program that closes Weft's descriptors loses its locks, too. But that process
    // still maps the segment, and an ending process unmaps its memory before it loses its locks.
    const bool ours = segment_->memory().descriptor_intact();
    if (ours && locked_elsewhere(rank)) return true;
    const RankRow& other = segment_->row(rank);
    if (other.pid_namespace != 0 && other.pid_namespace == pid_namespace()) return mapped_by(other);
    return !ours;  // we cannot tell: do not accuse
}

static struct flock lock_of(int rank, short type) {
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = rank;
    lock.l_len = 1;
    return lock;
}

bool Liveness::locked_elsewhere(int rank) const {
    struct flock lock = lock_of(rank, F_WRLCK);
    // Unknown: report no death.
    if (!segment_->memory().descriptor_intact() || fcntl(segment_->memory().fd(), F_GETLK, &lock) != 0) return true;
    return lock.l_type != F_UNLCK;
}

bool Liveness::mapped_by(const RankRow& row) const {
    const std::string maps = system_file(fmt::format("/proc/{}/maps", row.pid));
    return maps.find(fmt::format(" {} ", segment_->memory().inode())) != std::string::npos &&
           maps.find("/memfd:weft") != std::string::npos;
}

Status Liveness::returned_error(int rank) const {
    const auto position = segment_->row(rank).position.read();
    if (!position) return ok();
    auto failure = segment_->row(rank).returned_error.read(position->entered);
    return failure ? Status(std::move(*failure)) : ok();
}

bool Liveness::stopped(int rank) const {
    if (!segment_->local(rank)) return segment_->row(rank).remote.stopped.load(std::memory_order_acquire) != 0;
    if (segment_->row(rank).process == process_token()) return false;  // the calling process runs
    return process_stopped(segment_->row(rank).pid);
}

Status Liveness::claim(int rank) const {
    // Lock first: a rank that is claimed but not locked counts as dead.
    struct flock lock = lock_of(rank, F_WRLCK);
    auto& claimant_pid = segment_->rank_info(rank).claimant_pid;
    if (fcntl(segment_->memory().fd(), F_SETLK, &lock) == 0) {
        uint64_t other = 0;
        if (segment_->rank_info(rank).claimant.compare_exchange_strong(other, process_token(),
                                                                       std::memory_order_acq_rel)) {
            claimant_pid.store(getpid(), std::memory_order_release);
            return ok();
        }
        // The lock belongs to the process, so another thread of this process may have claimed the rank.
        if (other != process_token()) {
            lock.l_type = F_UNLCK;
            fcntl(segment_->memory().fd(), F_SETLK, &lock);
        }
    } else if (errno != EACCES && errno != EAGAIN) {
        return fail(error::system_call, "rank {} could not lock its row in the shared segment: {}", rank,
                    errno_text(errno));
    }
    // until the claimant has stored its pid
    for (int i = 0; i < 1000 && claimant_pid.load(std::memory_order_acquire) == 0; ++i) usleep(1000);
    if (segment_->rank_info(rank).claimant.load(std::memory_order_acquire) == process_token())
        return fail(error::mismatch_rank_twice, "process {} joined twice as rank {} of {}", getpid(), rank,
                    segment_->ranks());
    return fail(error::mismatch_rank_twice, "two processes are rank {} of {}: pid {} and pid {}", rank,
                segment_->ranks(), claimant_pid.load(std::memory_order_acquire), getpid());
}

bool Liveness::died_joining(int rank) const {
    const uint64_t claimant = segment_->rank_info(rank).claimant.load(std::memory_order_acquire);
    if (claimant == 0 || claimant == process_token() || locked_elsewhere(rank)) return false;
    // Read after the lock: the rank may have joined, left and ended since.
    return segment_->rank_info(rank).pid.load(std::memory_order_acquire) == 0;
}

void mark_dead(Segment& segment, int rank) {
    if (!segment.back_rows(rank, 1)) return;
    // Rows of remote ranks stay zero until their leader reports.
    RankState living = segment.local(rank) ? RankState::joined : segment.row(rank).state.load();
    if (living != RankState::joined && living != RankState::absent) return;
    if (segment.row(rank).state.compare_exchange_strong(living, RankState::dead)) segment.wake_sleepers();
}

}  // namespace weft::internal
