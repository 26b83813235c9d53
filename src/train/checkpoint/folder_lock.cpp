#include "src/train/checkpoint/folder_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace weft::internal::train {

namespace {

constexpr const char* lock_name = "checkpoint.lock";

std::string own_host() {
    char name[256] = {};
    return gethostname(name, sizeof name - 1) == 0 ? name : "an unknown host";
}

// The first line is the host, the second one the process. An owner may not have written it yet.
struct Owner {
    std::string host;
    pid_t pid = 0;

    static Owner read(int file) {
        char text[512] = {};
        const ssize_t count = pread(file, text, sizeof text - 1, 0);
        const std::string all(text, count > 0 ? size_t(count) : 0);
        const size_t line = all.find('\n');
        if (line == std::string::npos) return {};
        return {all.substr(0, line), pid_t(std::atol(all.c_str() + line))};
    }
    void write(int file) const {
        const std::string text = fmt::format("{}\n{}\n", host, pid);
        // Only messages and has_ended() read it.
        if (ftruncate(file, 0) == 0) (void)!pwrite(file, text.data(), text.size(), 0);
    }
    // A forked child may hold the lock of a process that has ended.
    bool has_ended() const { return host == own_host() && pid > 0 && kill(pid, 0) != 0 && errno == ESRCH; }
    std::string text() const { return pid > 0 ? fmt::format("process {} on host {}", pid, host) : "another process"; }
};

// Whether the name still stands for the open file: its owner removes it.
bool is_named(int file, const std::string& name) {
    struct stat open {
    }, named{};
    return fstat(file, &open) == 0 && stat(name.c_str(), &named) == 0 && open.st_ino == named.st_ino &&
           open.st_dev == named.st_dev;
}

}  // namespace

Result<FolderLock> FolderLock::take(const std::string& folder) {
    FolderLock lock;
    const std::string name = folder + "/" + lock_name;
    constexpr int attempts = 8;  // each time another save has ended meanwhile
    for (int attempt = 0; attempt < attempts; ++attempt) {
        Fd file = Fd::open(name, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
        if (!file) return fail(error::file_unwritable, "{} could not be opened: {}", name, errno_text(errno));
        int result = 0;
        do result = flock(file.number(), LOCK_EX | LOCK_NB);
        while (result != 0 && errno == EINTR);
        if (result != 0 && errno == EWOULDBLOCK) {
            const Owner owner = Owner::read(file.number());
            if (!owner.has_ended())
                return fail(error::train_checkpoint_busy, "{} saves a checkpoint in {} now", owner.text(), folder);
            if (is_named(file.number(), name)) (void)unlink(name.c_str());
            continue;
        }
        if (result != 0) {  // the file system has no locks
            (void)unlink(name.c_str());
            return lock;
        }
        if (!is_named(file.number(), name)) continue;
        Owner{own_host(), getpid()}.write(file.number());
        lock.file_ = std::move(file);
        lock.name_ = name;
        return lock;
    }
    return fail(error::train_checkpoint_busy, "other saves in {} begin and end all the time", folder);
}

void FolderLock::release() noexcept {
    if (file_.number() < 0) return;
    if (is_named(file_.number(), name_)) (void)unlink(name_.c_str());
    (void)flock(file_.number(), LOCK_UN);  // also of a forked child
    file_.reset();
}

}  // namespace weft::internal::train
