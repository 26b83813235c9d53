// worker_memory.cpp: shared memory that is refused. This program overrides the library's fallocate(), which refuses on
// request as a full machine does. A process that touches a refused page is ended by a signal, as by SIGBUS there.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <climits>
#include <cstdio>
#include <fstream>

#include "tests/faults/worker.hpp"

using namespace worker;

namespace {

std::atomic<int> granted_first{INT_MAX}, refused{0}, awake_first{INT_MAX};

// Calls `use` with each part of this process's mappings of the file that shows [first, last) of it.
template <class Use>
void in_mappings(int fd, off_t first, off_t last, Use use) {
    struct stat file;
    if (fstat(fd, &file) != 0) abort();
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        uintptr_t begin, end;
        off_t offset;
        ino_t inode;
        if (sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %*s %lx %*s %lu", &begin, &end, &offset, &inode) != 4 ||
            inode != file.st_ino || line.find("memfd:weft") == std::string::npos)
            continue;
        const off_t from = std::max(first, offset), to = std::min(last, offset + off_t(end - begin));
        if (from < to) use(reinterpret_cast<std::byte*>(begin) + (from - offset), size_t(to - from));
    }
}

// Pages that other processes have backed stay usable; the others are holes of the file.
void make_holes_untouchable(int fd, off_t first, off_t last) {
    for (off_t hole = first; hole < last;) {
        hole = lseek(fd, hole, SEEK_HOLE);
        if (hole < 0 || hole >= last) return;
        const off_t data = lseek(fd, hole, SEEK_DATA);
        const off_t end = data < 0 ? last : std::min(data, last);
        in_mappings(fd, hole, end, [](std::byte* part, size_t bytes) {
            if (mprotect(part, bytes, PROT_NONE) != 0) abort();
        });
        hole = end;
    }
}

}  // namespace

int fallocate(int fd, int mode, off_t offset, off_t length) {
    const bool releases = (mode & FALLOC_FL_PUNCH_HOLE) != 0;
    if (!releases && awake_first.fetch_sub(1) == 0) raise(SIGSTOP);
    if (!releases && granted_first.fetch_sub(1) <= 0) {
        ++refused;
        make_holes_untouchable(fd, offset, offset + length);
        errno = ENOSPC;
        return -1;
    }
    const long result = syscall(SYS_fallocate, fd, mode, offset, length);
    if (result == 0 && !releases && refused > 0)
        in_mappings(fd, offset, offset + length,
                    [](std::byte* part, size_t bytes) { mprotect(part, bytes, PROT_READ | PROT_WRITE); });
    return int(result);
}

// scarce=N: from now on N more requests for shared memory are granted
void worker::step_scarce(Worker&, const Values& values) { granted_first = int(number(values, 0, 0)); }
// There is memory again; says how many requests were refused.
void worker::step_plenty(Worker&, const Values&) {
    granted_first = INT_MAX;
    tell("refused " + std::to_string(refused));
}
// freeze=N: after N more requests for shared memory the process stops, as by SIGSTOP, in the next
void worker::step_freeze(Worker&, const Values& values) { awake_first = int(number(values, 0, 0)); }
