#include "src/drivers/verbs/refusal.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <charconv>

#include "src/base/file.hpp"

namespace weft::internal::verbs {

namespace {

constexpr const char* remedy =
    "Set `ulimit -l unlimited`; in containers --ulimit memlock=-1:-1 or --cap-add IPC_LOCK; for slurmd, kubelet and "
    "sshd "
    "LimitMEMLOCK=infinity";

rlimit memlock() {
    rlimit limit{};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    return limit;
}

// CAP_IPC_LOCK: the limit does not count.
bool may_pin_all() {
    constexpr unsigned ipc_lock = 14;
    const std::string status = system_file("/proc/self/status"), key = "CapEff:\t";
    const size_t place = status.find(key);
    uint64_t capabilities = 0;
    if (place != std::string::npos)
        std::from_chars(status.data() + place + key.size(), status.data() + status.size(), capabilities, 16);
    return (capabilities >> ipc_lock & 1) != 0;
}

}  // namespace

Status refused(const Context& context, const std::string& what, size_t pinned_bytes, int error) {
    if (error != ENOMEM)
        return fail(error::verbs_call, "{} refuses {}: {}", context.facts().name, what, errno_text(error));
    const rlimit limit = memlock();
    if (limit.rlim_cur == RLIM_INFINITY || may_pin_all())
        return fail(error::verbs_call,
                    "{} refuses {}: {}; no limit of this process forbids it, so the device or the kernel has no room, "
                    "as of queue pairs, memory keys or a GPU's BAR1",
                    context.facts().name, what, errno_text(error));
    return fail(error::verbs_memlock,
                "{} refuses {}: the kernel may not pin {} more bytes; RLIMIT_MEMLOCK of this process is {} bytes. {}",
                context.facts().name, what, pinned_bytes, uint64_t(limit.rlim_cur), remedy);
}

std::string memlock_note(uint64_t least_bytes) {
    const rlimit limit = memlock();
    if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= least_bytes || may_pin_all()) return {};
    return fmt::format("RLIMIT_MEMLOCK of this process is {} bytes, which is too little for RDMA. {}",
                       uint64_t(limit.rlim_cur), remedy);
}

}  // namespace weft::internal::verbs
