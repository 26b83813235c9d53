#include "src/train/offload/state_file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <vector>

namespace weft::internal::train {

Result<StateFile> StateFile::create(const std::string& folder, uint64_t bytes) {
    StateFile made;
    made.folder_ = folder;
    WEFT_TRY(made.open());
    WEFT_TRY(made.reserve(bytes));
    made.bypass_cache(bytes);
    return made;
}

Status StateFile::open() {
    file_ = Fd::open(folder_, O_TMPFILE | O_RDWR, 0600);
    // Some file systems, such as NFS, have no unnamed files. A name of a crashed run is left alone.
    static std::atomic<unsigned> made{0};
    for (int tries = 0; !file_ && (errno == EOPNOTSUPP || errno == EISDIR || errno == EEXIST) && tries < 1000;
         ++tries) {
        const std::string name = fmt::format("{}/weft-offload-{}-{}", folder_, getpid(), made++);
        file_ = Fd::open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
        if (file_) unlink(name.c_str());
    }
    if (file_) return ok();
    return fail(error::train_offload, "a file could not be made in the folder {}: {}", folder_,
                no_descriptor_text(errno));
}

// A full disk is found here, and not by a step.
Status StateFile::reserve(uint64_t bytes) const {
    rlimit limit{};
    // Beyond the limit the kernel would also send SIGXFSZ, which ends the process.
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur)
        return fail(error::train_offload, "the states need a file of {} bytes in {}, but ulimit -f allows {} bytes",
                    bytes, folder_, uint64_t(limit.rlim_cur));
    if (bytes == 0) return ok();
    int reserved;
    do reserved = fallocate(file_.number(), 0, 0, off_t(bytes));
    while (reserved != 0 && errno == EINTR);
    if (reserved == 0) return ok();
    if (errno == EOPNOTSUPP || errno == ENOSYS) return write_zeros(bytes);
    return fail(error::train_offload, "the states need a file of {} bytes in {}: {}", bytes, folder_,
                errno_text(errno));
}

Status StateFile::write_zeros(uint64_t bytes) const {
    const std::vector<std::byte> zeros(size_t(1) << 20);
    for (uint64_t place = 0; place < bytes;) {
        const ssize_t written =
            pwrite(file_.number(), zeros.data(), std::min<uint64_t>(zeros.size(), bytes - place), off_t(place));
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return failure(true, written < 0 ? -errno : 0);
        place += uint64_t(written);
    }
    return ok();
}

// The states of a large model would push everything else out of the page cache.
void StateFile::bypass_cache(uint64_t bytes) {
    if (bytes < transfer_alignment) return;
    const int flags = fcntl(file_.number(), F_GETFL);
    if (flags < 0 || fcntl(file_.number(), F_SETFL, flags | O_DIRECT) != 0) return;
    struct FreedPage {
        void operator()(void* memory) const { std::free(memory); }
    };
    const std::unique_ptr<void, FreedPage> page(std::aligned_alloc(transfer_alignment, transfer_alignment));
    // A disk may ask for a larger alignment, which the first transfer shows.
    direct_ = page && pread(file_.number(), page.get(), transfer_alignment, 0) == ssize_t(transfer_alignment);
    if (!direct_) (void)fcntl(file_.number(), F_SETFL, flags);
}

Status StateFile::failure(bool writes, int64_t moved) const {
    if (writes)
        return fail(error::train_offload, "states could not be written to {}: {}", folder_,
                    errno_text(moved < 0 ? int(-moved) : ENOSPC));
    if (moved < 0)
        return fail(error::train_offload, "states could not be read from {}: {}", folder_, errno_text(int(-moved)));
    return fail(error::train_offload, "states could not be read from {}: the file is shorter than it was made",
                folder_);
}

}  // namespace weft::internal::train
