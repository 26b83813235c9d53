#include "src/peer_access/limits.hpp"

namespace weft::internal {

bool cma_messages_wanted(int asked) {
    if (asked >= 0) return asked > 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    return !__builtin_cpu_is("amd");
#else
    return true;
#endif
}

}  // namespace weft::internal
