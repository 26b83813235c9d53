#include "src/train/checkpoint/folder_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <sstream>

#include "src/base/file.hpp"

namespace weft::internal::train {

namespace {

constexpr const char* lock_name = "checkpoint.lock";

std::string own_host() {
    char name[256] = {};
    return gethostname(name, sizeof name - 1) == 0 ? name : "an unknown host";
}

// Where process numbers have one meaning: a boot and a PID namespace. Containers may share the name of their host. Empty:
// unknown.
std::string own_processes() {
    std::string boot;
    std::istringstream(system_file("/proc/sys/kernel/random/boot_id")) >> boot;
    struct stat space {};
    if (boot.empty() || stat("/proc/self/ns/pid", &space) != 0) return "";
    return fmt::format("{} {}", boot, space.st_ino);
}

// Lines: the host, the process, and where its number has a meaning. An owner may not have written them yet.
struct Owner {
    std::string host;
    pid_t pid = 0;
    std::string processes;

    static Owner read(int file) {
        char text[512] = {};
        const ssize_t count = pread(file, text, sizeof text - 1, 0);
        std::istringstream lines(std::string(text, count > 0 ? size_t(count) : 0));
        Owner owner;
        std::string pid;
        std::getline(lines, owner.host);
        std::getline(lines, pid);
        std::getline(lines, owner.processes);
        owner.pid = pid_t(std::atol(pid.c_str()));
        return owner;
    }
    void write(int file) const {
        const std::string text = fmt::format("{}\n{}\n{}\n", host, pid, processes);
        // Only messages and has_ended() read it.
        if (ftruncate(file, 0) == 0) (void)!pwrite(file, text.data(), text.size(), 0);
    }
    // A forked child may hold the lock of a process that has ended.
    bool has_ended() const {
        return pid > 0 && !processes.empty() && processes == own_processes() && kill(pid, 0) != 0 && errno == ESRCH;
    }
    std::string text() const { return pid > 0 ? fmt::format("process {} on host {}", pid, host) : "another process"; }
};

// Whether the name still stands for the open file: its owner removes it.
bool is_named(int file, const std::string& name) {
    struct stat open {
    }, named{};
    return fstat(file, &open) == 0 && stat(name.c_str(), &named) == 0 && open.st_ino == named.st_ino &&
           open.st_dev == named.st_dev;
}

// Removes the file of an ended owner. Two saves that see it at once must not remove each other's new file, so one of them
// does it at a time. Returns false if another one does it now, or the file system cannot lock folders.
bool pass_over(int file, const std::string& name, const std::string& folder) {
    const Fd guard = Fd::open(folder, O_RDONLY | O_DIRECTORY);
    if (!guard || flock(guard.number(), LOCK_EX | LOCK_NB) != 0) return false;
    if (is_named(file, name)) (void)unlink(name.c_str());
    (void)flock(guard.number(), LOCK_UN);  // also of a child that was forked meanwhile
    return true;
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
            if (!owner.has_ended() || !pass_over(file.number(), name, folder))
                return fail(error::train_checkpoint_busy, "{} saves a checkpoint in {} now", owner.text(), folder);
            continue;
        }
        if (result != 0) {  // the file system has no locks
            (void)unlink(name.c_str());
            return lock;
        }
        if (!is_named(file.number(), name)) continue;
        Owner{own_host(), getpid(), own_processes()}.write(file.number());
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
