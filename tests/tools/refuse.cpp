// refuse.cpp: starts a program whose kernel refuses system calls, as an older one or a container's profile does:
// `refuse ENOSYS pidfd_open,memfd_create program its arguments`.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Row {
    const char* name;
    long number;
};
#define ROW(name) \
    { #name, SYS_##name }
const Row rows[] = {
    ROW(accept4),
    ROW(clone3),
    ROW(close_range),
    ROW(epoll_create1),
    ROW(eventfd2),
    ROW(fallocate),
    ROW(flock),
    ROW(ftruncate),
    ROW(get_mempolicy),
    ROW(getcpu),
    ROW(getrandom),
    ROW(getsockopt),
    ROW(kcmp),
    ROW(madvise),
    ROW(mbind),
    ROW(membarrier),
    ROW(memfd_create),
    ROW(mlock),
    ROW(move_pages),
    ROW(mremap),
    ROW(pidfd_getfd),
    ROW(pidfd_open),
    ROW(pidfd_send_signal),
    ROW(pipe2),
    ROW(ppoll),
    ROW(prctl),
    ROW(prlimit64),
    ROW(process_vm_readv),
    ROW(process_vm_writev),
    ROW(rseq),
    ROW(sched_getaffinity),
    ROW(sched_setaffinity),
    ROW(sched_yield),
    ROW(set_mempolicy),
    ROW(set_robust_list),
    ROW(setsockopt),
    ROW(signalfd4),
    ROW(socket),
    ROW(socketpair),
    ROW(statx),
    ROW(sysinfo),
    ROW(timerfd_create),
    ROW(uname),
    ROW(waitid),
};
#undef ROW

const Row* find(const std::string& name) {
    for (const Row& row : rows)
        if (name == row.name) return &row;
    return nullptr;
}

}  // namespace

// 99: the command line is wrong or the filter was not taken; 98: the program was not found.
int main(int count, char** arguments) {
    if (count == 2 && strcmp(arguments[1], "--list") == 0) {
        for (const Row& row : rows) puts(row.name);
        return 0;
    }
    if (count < 4) return 99;
    const std::string error = arguments[1];
    const unsigned number = error == "ENOSYS" ? ENOSYS : error == "EPERM" ? EPERM : error == "EINVAL" ? EINVAL : 0;
    if (number == 0) return 99;
    std::vector<sock_filter> steps = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
    std::istringstream names(arguments[2]);
    for (std::string name; std::getline(names, name, ',');) {
        const Row* row = find(name);
        if (!row) return 99;
        steps.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, unsigned(row->number), 0, 1));
        steps.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | number));
    }
    steps.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    sock_fprog filter = {static_cast<unsigned short>(steps.size()), steps.data()};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        return 99;
    execvp(arguments[3], arguments + 3);
    return 98;
}
