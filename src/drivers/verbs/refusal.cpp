#include "src/drivers/verbs/refusal.hpp"

#include <sys/resource.h>

#include <cerrno>

namespace weft::internal::verbs {

Status refused(const Context& context, const std::string& what, size_t pinned_bytes, int error) {
    if (error != ENOMEM)
        return fail(error::verbs_call, "{} refuses {}: {}", context.facts().name, what, errno_text(error));
    rlimit limit{};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    const std::string most =
        limit.rlim_cur == RLIM_INFINITY ? "unlimited" : fmt::format("{} bytes", uint64_t(limit.rlim_cur));
    return fail(
        error::verbs_memlock,
        "{} refuses {}: the kernel may not pin {} more bytes; RLIMIT_MEMLOCK of this process is {}. Set `ulimit "
        "-l unlimited`; in containers --ulimit memlock=-1:-1 or --cap-add IPC_LOCK; for slurmd, kubelet and "
        "sshd LimitMEMLOCK=infinity",
        context.facts().name, what, pinned_bytes, most);
}

}  // namespace weft::internal::verbs
