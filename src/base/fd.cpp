#include "src/base/fd.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "src/base/options.hpp"
#include "src/base/result.hpp"

namespace weft::internal {

namespace {

// The limit is doubled, not set to the hard limit: that may be a billion, and some programs close "all" descriptors in
// a loop.
std::atomic<uint64_t> raised_limit{0};  // not reported yet; 0: none

bool raise_limit() {
    if (!options().raise_nofile) return false;
    static std::mutex raising;
    const std::lock_guard lock(raising);
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
    limit.rlim_cur = std::min(limit.rlim_max, std::max<rlim_t>(2 * limit.rlim_cur, 64));
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
    raised_limit.store(limit.rlim_cur, std::memory_order_relaxed);
    return true;
}

int move_above_standard(int number) {
    if (number < 0 || number > STDERR_FILENO) return number;
    const int above = fcntl(number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int error = errno == EINVAL ? EMFILE : errno;  // if the limit is 3 or less
    close(number);
    errno = error;
    return above;
}

bool is_standard_number_free() {
    for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number)
        if (fcntl(number, F_GETFD) < 0) return true;
    return false;
}

template <class Create>
Fd make(Create&& create) {
    // Otherwise a new socket has a standard number for a moment, in which the program's output may go into it.
    std::optional<StandardNumbers> held;
    if (is_standard_number_free()) held.emplace();
    int number = move_above_standard(create());
    if (number < 0 && errno == EMFILE && held) {
        held.reset();
        number = move_above_standard(create());
    }
    if (number < 0 && errno == EMFILE) {
        if (raise_limit())
            number = move_above_standard(create());
        else
            errno = EMFILE;
    }
    const int error = errno;
    Fd made(number);
    errno = error;
    return made;
}

}  // namespace

FileIdentity FileIdentity::of(int number) {
    struct stat status {};
    if (number < 0 || fstat(number, &status) != 0) return {};
    return {status.st_dev, status.st_ino};
}

bool FileIdentity::holds(int number) const {
    struct stat status {};
    return fstat(number, &status) == 0 && status.st_dev == device && status.st_ino == inode;
}

Fd::Fd(int number) : number_(number), identity_(FileIdentity::of(number)) {}

Fd Fd::open(const std::string& name, int flags, mode_t mode) {
    return make([&] { return ::open(name.c_str(), flags | O_CLOEXEC, mode); });
}

Fd Fd::socket(int family, int type) {
    return make([&] { return ::socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
}

Fd Fd::accept(int listener, sockaddr* peer, socklen_t* bytes) {
    return make([&] {
        const int number = accept4(listener, peer, bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
        // accept4 allocates a descriptor before it looks for a connection: if there is no connection, EMFILE is no
        // failure.
        if (number < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
            const int error = errno;
            pollfd waiting{listener, POLLIN, 0};
            errno = poll(&waiting, 1, 0) == 0 ? EAGAIN : error;
        }
        return number;
    });
}

Fd Fd::memory(const char* name, unsigned flags) {
    return make([&] { return memfd_create(name, flags | MFD_CLOEXEC); });
}

Fd Fd::event() {
    return make([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
}

Fd Fd::epoll() {
    return make([] { return epoll_create1(EPOLL_CLOEXEC); });
}

Fd Fd::timer() {
    return make([] { return timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC); });
}

Fd Fd::duplicate(int number) {
    return make([number] { return fcntl(number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1); });
}

Fd Fd::adopt(int number) {
    if (number < 0) return {};
    if (number > STDERR_FILENO) {
        (void)fcntl(number, F_SETFD, FD_CLOEXEC);
        return Fd(number);
    }
    Fd above = duplicate(number);
    const int error = errno;
    close(number);
    errno = error;
    return above;
}

uint64_t Fd::take_raised_limit() { return raised_limit.exchange(0, std::memory_order_relaxed); }

void Fd::make_room(int count) {
    const int error = errno;
    std::vector<Fd> places;
    for (int i = 0; i < count; ++i) {
        Fd place = event();
        if (!place) break;
        places.push_back(std::move(place));
    }
    errno = error;
}

// An unconnected socket has its own inode, and reading and writing fail.
StandardNumbers::StandardNumbers() {
    const int error = errno;
    for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number) {
        if (fcntl(number, F_GETFD) >= 0) continue;
        const int place = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (place < 0) break;
        Fd held(place);
        if (place <= STDERR_FILENO) held_[place] = std::move(held);
    }
    errno = error;
}

bool ring_event(const Fd& event) {
    const uint64_t once = 1;
    return event.intact() && (write(event.number(), &once, sizeof once) == sizeof once || errno == EAGAIN);
}

bool drain_event(const Fd& event) {
    uint64_t count;
    return event.intact() && read(event.number(), &count, sizeof count) == sizeof count;
}

std::string no_descriptor_text(int error) {
    std::string text = errno_text(error);
    if (error == EMFILE)
        text += options().raise_nofile ? "; raise the hard limit of descriptors (ulimit -n)"
                                       : "; raise the limit of descriptors (ulimit -n), which WEFT_RAISE_NOFILE=0 "
                                         "forbids Weft to do";
    if (error == ENFILE) text += "; raise the system's limit of open files (fs.file-max)";
    return text;
}

bool is_lost_descriptor(int error) { return error == EBADF || error == ENOTSOCK; }

}  // namespace weft::internal
