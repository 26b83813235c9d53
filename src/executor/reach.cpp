#include "src/executor/reach.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <map>

#include "src/base/arena.hpp"
#include "src/base/log.hpp"

namespace weft {

Reach::Reach(HostGroup& host, int rank, bool allowed) : host_(&host), rank_(rank) {
    for (int other = 0; other < host.ranks(); ++other) one_process_ &= host.row(other).process == process_token();
    state_ = !allowed ? State::refused : one_process_ ? State::ready : State::unknown;
}

uint64_t Reach::offer(const void* address, size_t bytes) const {
    if (state_ == State::refused) return 0;
    if (one_process_) return reinterpret_cast<uint64_t>(address);
    const Arena* arena = Arena::existing();
    if (!arena || !arena->contains(address, bytes)) return 0;
    return uint64_t(static_cast<const std::byte*>(address) - arena->memory().data()) + 1;
}

bool Reach::map_arenas() {
    arenas_.assign(size_t(host_->ranks()), nullptr);
    std::map<uint64_t, std::byte*> mapped;  // by process
    for (int other = 0; other < host_->ranks(); ++other) {
        const RankRow& row = host_->row(other);
        std::byte*& base = mapped[row.process];
        if (!base) {
            if (row.process == process_token()) {
                auto own = Arena::get();
                if (!own) return false;
                base = (*own)->memory().data();
            } else {
                // Same user, same process-id namespace: the descriptor can be opened by its name. Where not, messages
                // are staged. Looked at before it is opened: under another numbering of processes the name may be that
                // of anything, even of our own segment, and closing a descriptor of that drops the lock that says that
                // we live.
                const std::string name = fmt::format("/proc/{}/fd/{}", row.pid, row.arena_fd);
                struct stat status {};
                Fd fd;
                if (stat(name.c_str(), &status) == 0 && status.st_ino == row.arena_inode)
                    fd = Fd(open(name.c_str(), O_RDWR | O_CLOEXEC));
                if (!fd || fstat(fd.number(), &status) != 0 || status.st_ino != row.arena_inode) {
                    WEFT_LOG_RANK(rank_, info, shm,
                                  "the buffers of rank {} (pid {}) cannot be mapped here, so messages are staged",
                                  other, row.pid);
                    return false;
                }
                auto memory = SharedMemory::map(std::move(fd));
                if (!memory) {
                    WEFT_LOG_RANK(rank_, info, shm,
                                  "the buffers of rank {} cannot be mapped, so messages are staged: {}", other,
                                  memory.status().sentence());
                    return false;
                }
                memory->close_descriptor();  // one a peer and communicator would use up the process's limit
                base = memory->data();
                maps_.push_back(std::move(*memory));
            }
        }
        arenas_[size_t(other)] = base;
    }
    return true;
}

void Reach::agree(bool all_have_mapped) {
    state_ = all_have_mapped ? State::ready : State::refused;
    if (rank_ == 0)
        WEFT_LOG_RANK(rank_, info, shm, "buffers of weftMemAlloc are {} in place",
                      all_have_mapped ? "read and written" : "not used");
}

}  // namespace weft
