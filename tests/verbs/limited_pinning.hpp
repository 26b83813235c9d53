// limited_pinning.hpp: makes this process one whose pinned memory the kernel limits, as tests may run as root.
#pragma once
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace weft::internal::test {

// Of the main thread, and for good of the processes that it starts. The limit ends with this object.
class LimitedPinning {
  public:
    LimitedPinning() {
        constexpr rlim_t limit = rlim_t(1) << 30;
        getrlimit(RLIMIT_MEMLOCK, &before_);
        rlimit limited = before_;
        limited.rlim_cur = std::min(limit, before_.rlim_max);
        setrlimit(RLIMIT_MEMLOCK, &limited);
        (void)prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK);
        set_capability(false);
    }
    LimitedPinning(const LimitedPinning&) = delete;
    LimitedPinning& operator=(const LimitedPinning&) = delete;
    ~LimitedPinning() {
        setrlimit(RLIMIT_MEMLOCK, &before_);
        set_capability(true);
    }

  private:
    // Effective only: a process that never had it cannot get it.
    static void set_capability(bool on) {
        __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
        __user_cap_data_struct sets[2] = {};
        if (syscall(SYS_capget, &header, sets) != 0) return;
        constexpr unsigned bit = 1u << CAP_IPC_LOCK;
        sets[0].effective = on ? sets[0].effective | (bit & sets[0].permitted) : sets[0].effective & ~bit;
        (void)syscall(SYS_capset, &header, sets);
    }
    rlimit before_{};
};

}  // namespace weft::internal::test
