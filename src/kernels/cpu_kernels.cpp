// cpu_kernels.cpp: the sets of CPU kernels in this build, and the choice among those that this machine can run.
#include "src/kernels/cpu_kernels.hpp"

#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace weft::internal {

extern const CpuKernels plain_cpu_kernels;
#if defined(__x86_64__)
extern const CpuKernels avx2_cpu_kernels;
extern const CpuKernels avx512_cpu_kernels;
#elif defined(__aarch64__)
extern const CpuKernels neon_cpu_kernels;
#endif

namespace {

#if defined(__x86_64__)
bool has_f16c() {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
// The builtins also check that the operating system saves the wide registers.
bool has_avx2() { return __builtin_cpu_supports("avx2") && has_f16c(); }
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

std::vector<const CpuKernels*> runnable_cpu_kernels() {
    std::vector<const CpuKernels*> sets;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (has_avx512()) sets.push_back(&avx512_cpu_kernels);
    if (has_avx2()) sets.push_back(&avx2_cpu_kernels);
#elif defined(__aarch64__)
    sets.push_back(&neon_cpu_kernels);
#endif
    sets.push_back(&plain_cpu_kernels);
    return sets;
}

}  // namespace

std::span<const CpuKernels* const> all_cpu_kernels() {
    static const std::vector<const CpuKernels*> sets = runnable_cpu_kernels();
    return sets;
}

const CpuKernels& cpu_kernels() { return *all_cpu_kernels().front(); }

const CpuKernels* find_cpu_kernels(std::string_view isa) {
    for (const CpuKernels* set : all_cpu_kernels()) {
        if (set->isa == isa) return set;
    }
    return nullptr;
}

}  // namespace weft::internal
