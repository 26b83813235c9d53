// movers.cpp: which sets of movers there are, and which of them this machine can run.
#include "src/kernels/movers.hpp"

#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace weft::internal {

extern const Movers plain_movers;
#if defined(__x86_64__)
extern const Movers avx2_movers;
extern const Movers avx512_movers;
#elif defined(__aarch64__)
extern const Movers neon_movers;
#endif

namespace {

#if defined(__x86_64__)
bool has_f16c() {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
// These ask the operating system too: whether it saves the wide registers.
bool has_avx2() { return __builtin_cpu_supports("avx2") && has_f16c(); }
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

std::vector<const Movers*> runnable_movers() {
    std::vector<const Movers*> sets;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (has_avx512()) sets.push_back(&avx512_movers);
    if (has_avx2()) sets.push_back(&avx2_movers);
#elif defined(__aarch64__)
    sets.push_back(&neon_movers);
#endif
    sets.push_back(&plain_movers);
    return sets;
}

}  // namespace

std::span<const Movers* const> all_movers() {
    static const std::vector<const Movers*> sets = runnable_movers();
    return sets;
}

const Movers& movers() { return *all_movers().front(); }

const Movers* find_movers(std::string_view isa) {
    for (const Movers* set : all_movers()) {
        if (set->isa == isa) return set;
    }
    return nullptr;
}

}  // namespace weft::internal
