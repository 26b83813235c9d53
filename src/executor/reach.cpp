#include "src/executor/reach.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <map>
#include <mutex>

#include "src/base/arena.hpp"
#include "src/base/log.hpp"
#include "src/base/per_process.hpp"

namespace weft {

namespace {

// The arena of another process, mapped once here whichever ranks and communicators want it: a map takes as much address
// space as the machine has memory.
Result<std::shared_ptr<SharedMemory>> map_arena_of(const RankRow& row) {
    struct Maps {
        std::mutex mutex;
        std::map<std::pair<uint64_t, uint64_t>, std::weak_ptr<SharedMemory>> by_owner;  // process, inode
    };
    static PerProcess<Maps> processes;
    Maps& maps = processes.get();
    std::lock_guard lock(maps.mutex);
    std::erase_if(maps.by_owner, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<SharedMemory>& known = maps.by_owner[{row.process, row.arena_inode}];
    if (auto mapped = known.lock()) return mapped;
    // Same user, same process-id namespace: the descriptor can be opened by its name. Looked at before it is opened:
    // under another numbering of processes the name may be that of anything, even of our own segment, and closing a
    // descriptor of that drops the lock that says that we live.
    const std::string name = fmt::format("/proc/{}/fd/{}", row.pid, row.arena_fd);
    struct stat status {};
    Fd fd;
    if (stat(name.c_str(), &status) == 0 && status.st_ino == row.arena_inode)
        fd = Fd(open(name.c_str(), O_RDWR | O_CLOEXEC));
    if (!fd || fstat(fd.number(), &status) != 0 || status.st_ino != row.arena_inode)
        return fail(weftSystemError, "{} is not its memory, or may not be opened", name);
    auto memory = SharedMemory::map(std::move(fd));
    if (!memory) return memory.take_status();
    memory->close_descriptor();  // one a peer would use up the process's limit
    auto mapped = std::make_shared<SharedMemory>(std::move(*memory));
    known = mapped;
    return mapped;
}

}  // namespace

Reach::Reach(HostGroup& host, int rank, bool allowed) : host_(&host), rank_(rank) {
    for (int other = 0; other < host.ranks() && one_process_; ++other)
        one_process_ &= host.row(other).process == process_token();
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
                auto memory = map_arena_of(row);
                if (!memory) {
                    WEFT_LOG_RANK(rank_, info, shm,
                                  "the buffers of rank {} (pid {}) cannot be mapped, so messages are staged: {}", other,
                                  row.pid, memory.status().sentence());
                    return false;
                }
                base = (*memory)->data();
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
