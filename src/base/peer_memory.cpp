#include "src/base/peer_memory.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

#include "src/base/per_process.hpp"

namespace weft {

namespace {

Result<std::shared_ptr<SharedMemory>> map(const PeerMemory& where) {
    auto fd = open_peer_memory(where);
    if (!fd) return fd.take_status();
    auto memory = SharedMemory::map(std::move(*fd));
    if (!memory) return memory.take_status();
    memory->close_descriptor();  // one a peer would use up the process's limit
    return std::make_shared<SharedMemory>(std::move(*memory));
}

}  // namespace

Result<Fd> open_peer_memory(const PeerMemory& where) {
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
    return fd;
}

Result<std::shared_ptr<SharedMemory>> map_peer_memory(const PeerMemory& where) {
    return shared_by_process<SharedMemory>(std::pair(where.process, where.inode), [&] { return map(where); });
}

}  // namespace weft
