#include "src/peer_access/peer_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <bit>
#include <utility>

#include "src/base/per_process.hpp"

namespace weft::internal {

namespace {

// Address space that a mapping of another process's memory takes here, while the object lives.
class Claim {
  public:
    explicit Claim(size_t bytes) : bytes_(bytes), all_(claimed_ += bytes) {}
    Claim(const Claim&) = delete;
    ~Claim() { claimed_ -= bytes_; }
    bool fits() const {
        rlimit limit{};
        const bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
        const size_t whole = std::bit_ceil(reinterpret_cast<uintptr_t>(&limit));  // stacks are at its end
        return all_ <= std::min(whole, limited ? size_t(limit.rlim_cur) : SIZE_MAX) / 4;
    }

  private:
    static inline std::atomic<size_t> claimed_{0};
    size_t bytes_, all_;
};

struct Mapped {
    Claim claim;
    SharedMemory memory;
};

std::string proc_path(const PeerMemory& where) { return fmt::format("/proc/{}/fd/{}", where.pid, where.fd); }

// With the same user and pid namespace the descriptor can be opened by its name. In another pid namespace the name may
// be that of any file.
bool is_there(const PeerMemory& where, struct stat& status) {
    return stat(proc_path(where).c_str(), &status) == 0 && status.st_ino == where.inode;
}

Result<std::shared_ptr<SharedMemory>> map(const PeerMemory& where) {
    auto fd = open_peer_memory(where);
    if (!fd) return fd.take_status();
    struct stat status {};
    const bool known = fstat(fd->number(), &status) == 0;
    const std::shared_ptr<Mapped> mapped(new Mapped{Claim(known ? size_t(status.st_size) : 0), {}});
    if (!mapped->claim.fits())
        return fail(error::shm_peer_memory,
                    "with it, mappings of other processes' memory would exceed a quarter of this process's address "
                    "space");
    auto memory = SharedMemory::map(std::move(*fd));
    if (!memory) return memory.take_status();
    memory->close_descriptor();  // one per peer would use up the process's limit
    (void)madvise(memory->data(), memory->bytes(), MADV_DONTDUMP);
    mapped->memory = std::move(*memory);
    return std::shared_ptr<SharedMemory>(mapped, &mapped->memory);
}

}  // namespace

Result<Fd> open_peer_memory(const PeerMemory& where) {
    // Compare before opening: if it is our own segment, closing the descriptor would drop this process's liveness lock.
    struct stat status {};
    Fd fd;
    if (is_there(where, status)) fd = Fd::open(proc_path(where), O_RDWR);
    if (!fd || fstat(fd.number(), &status) != 0 || status.st_ino != where.inode)
        return fail(error::shm_peer_memory, "{} is not memory of that process, or may not be opened", proc_path(where));
    return fd;
}

bool peer_memory_in_use(const PeerMemory& where) {
    struct stat status {};
    return is_there(where, status) && status.st_blocks > 0;
}

Result<std::shared_ptr<SharedMemory>> map_peer_memory(const PeerMemory& where) {
    return shared_by_process<SharedMemory>(std::pair(where.process, where.inode), [&] { return map(where); });
}

}  // namespace weft::internal
