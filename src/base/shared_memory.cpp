#include "src/base/shared_memory.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

namespace weft::internal {

namespace {

constexpr int populate_for_writing = 23;  // MADV_POPULATE_WRITE, which older headers lack

// Beyond RLIMIT_FSIZE the kernel also sends SIGXFSZ, which by default ends the process. The signal is blocked here, and
// consumed if it arrived meanwhile.
class FileSizeSignalHeld {
  public:
    FileSizeSignalHeld() {
        sigemptyset(&signals_);
        sigaddset(&signals_, SIGXFSZ);
        pthread_sigmask(SIG_BLOCK, &signals_, &before_);
    }
    ~FileSizeSignalHeld() {
        const timespec at_once{};
        if (!sigismember(&before_, SIGXFSZ)) sigtimedwait(&signals_, nullptr, &at_once);
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }

  private:
    sigset_t signals_, before_;
};

std::string amount(size_t bytes) {
    if (bytes >= size_t(10) << 20) return fmt::format("{} MiB", bytes >> 20);
    return fmt::format("{} KiB", (bytes + 1023) >> 10);
}

}  // namespace

size_t page_bytes() {
    static const size_t bytes = size_t(sysconf(_SC_PAGESIZE));
    return bytes;
}

Result<SharedMemory> SharedMemory::create(const char* name, size_t bytes, size_t mapped) {
    Fd fd = Fd::memory(name, MFD_ALLOW_SEALING);
    if (!fd)
        return fail(error::system_descriptors, "shared memory could not be created: memfd_create: {}",
                    no_descriptor_text(errno));
    {
        FileSizeSignalHeld held;
        if (ftruncate(fd.number(), off_t(bytes)) != 0)
            return fail(error::shm_address_space,
                        "a shared segment of {} (sparse) could not be made: ftruncate: {}; is there a file size limit "
                        "(ulimit -f)?",
                        amount(bytes), errno_text(errno));
    }
    if (fcntl(fd.number(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return fail(error::system_call, "a shared segment could not be sealed: {}", errno_text(errno));
    return map(std::move(fd), mapped);
}

Status SharedMemory::check_sealed(int fd) {
    constexpr int sealed = F_SEAL_SHRINK | F_SEAL_GROW;
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & sealed) != sealed)
        return fail(error::system_call, "a shared segment that another process passed is not sealed to its size");
    return ok();
}

Result<SharedMemory> SharedMemory::map(Fd fd, size_t mapped) {
    WEFT_TRY(check_sealed(fd.number()));
    struct stat status;
    if (fstat(fd.number(), &status) != 0)
        return fail(error::system_call, "the size of a shared segment could not be read: {}", errno_text(errno));
    const size_t segment = size_t(status.st_size);
    SharedMemory memory;
    WEFT_TRY(memory.map_range(fd.number(), 0, mapped == 0 ? segment : std::min(mapped, segment)));
    memory.fd_ = std::move(fd);
    memory.segment_ = segment;
    memory.inode_ = status.st_ino;
    return memory;
}

Result<SharedMemory> SharedMemory::window(const SharedMemory& whole, size_t offset, size_t length) {
    SharedMemory memory;
    WEFT_TRY(memory.map_range(whole.fd(), offset, length));
    memory.whole_ = &whole;
    memory.segment_ = whole.segment_;
    memory.inode_ = whole.inode_;
    return memory;
}

Status SharedMemory::map_range(int fd, size_t offset, size_t length) {
    void* data = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, off_t(offset));
    if (data == MAP_FAILED)
        return fail(error::shm_address_space,
                    "{} of address space for a shared segment could not be reserved: mmap: {}; is "
                    "there a limit (ulimit -v)?",
                    amount(length), errno_text(errno));
    data_ = static_cast<std::byte*>(data);
    offset_ = offset;
    bytes_ = length;
    return ok();
}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(whole_, other.whole_);
    std::swap(offset_, other.offset_);
    std::swap(segment_, other.segment_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(inode_, other.inode_);
    return *this;
}

SharedMemory::~SharedMemory() {
    if (data_) munmap(data_, bytes_);
}

Status SharedMemory::back(size_t offset, size_t length) {
    const size_t page = page_bytes();
    const size_t first = offset / page * page, last = std::min(bytes_, (offset + length + page - 1) / page * page);
    if (first >= last) return ok();
    FileSizeSignalHeld held;
    int result = 0;
    if (descriptor().intact()) {
        do result = fallocate(fd(), FALLOC_FL_KEEP_SIZE, off_t(offset_ + first), off_t(last - first));
        while (result != 0 && errno == EINTR);
    } else {
        // The program has closed the descriptor: only the mapping is left. A kernel before 5.14 cannot report this way
        // that memory is short.
        do result = madvise(data_ + first, last - first, populate_for_writing);
        while (result != 0 && errno == EINTR);
        if (result != 0 && errno == EINVAL) return fail(error::usage_closed_descriptor, "{}", lost_descriptor_text);
        if (result != 0) errno = ENOSPC;
    }
    if (result != 0)
        // All ranks of a communicator get this sentence.
        return fail(error::shm_memory,
                    "process {}: {} of shared memory could not be allocated: {}; free memory, or "
                    "raise the memory limit of the container",
                    getpid(), amount(last - first), errno_text(errno));
    // Page faults occur now, not in the first collective. Kernels before 5.14 refuse: then the first use pays.
    (void)madvise(data_ + first, last - first, populate_for_writing);
    return ok();
}

void SharedMemory::release(size_t offset, size_t length) {
    const size_t page = page_bytes();
    const size_t first = (offset + page - 1) / page * page, last = (offset + length) / page * page;
    if (first >= last) return;
    // Through the mapping, which the program cannot close. Memory that the program has locked is not released this way.
    if (madvise(data_ + first, last - first, MADV_REMOVE) != 0 && descriptor().intact())
        (void)fallocate(fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(offset_ + first), off_t(last - first));
}

}  // namespace weft::internal
