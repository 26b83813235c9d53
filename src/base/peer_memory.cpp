#include "src/base/peer_memory.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <map>
#include <mutex>

#include "src/base/per_process.hpp"

namespace weft {

Result<std::shared_ptr<SharedMemory>> map_peer_memory(const PeerMemory& where) {
    struct Maps {
        std::mutex mutex;
        std::map<std::pair<uint64_t, uint64_t>, std::weak_ptr<SharedMemory>> by_owner;  // process, inode
    };
    static PerProcess<Maps> processes;
    Maps& maps = processes.get();
    std::lock_guard lock(maps.mutex);
    std::erase_if(maps.by_owner, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<SharedMemory>& known = maps.by_owner[{where.process, where.inode}];
    if (auto mapped = known.lock()) return mapped;
    // Same user, same process-id namespace: the descriptor can be opened by its name. Looked at before it is opened:
    // under another numbering of processes the name may be that of anything, even of our own segment, and closing a
    // descriptor of that drops the lock that says that we live.
    const std::string name = fmt::format("/proc/{}/fd/{}", where.pid, where.fd);
    struct stat status {};
    Fd fd;
    if (stat(name.c_str(), &status) == 0 && status.st_ino == where.inode)
        fd = Fd(open(name.c_str(), O_RDWR | O_CLOEXEC));
    if (!fd || fstat(fd.number(), &status) != 0 || status.st_ino != where.inode)
        return fail(weftSystemError, "{} is not its memory, or may not be opened", name);
    auto memory = SharedMemory::map(std::move(fd));
    if (!memory) return memory.take_status();
    memory->close_descriptor();  // one a peer would use up the process's limit
    auto mapped = std::make_shared<SharedMemory>(std::move(*memory));
    known = mapped;
    return mapped;
}

}  // namespace weft
