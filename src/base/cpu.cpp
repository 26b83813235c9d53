#include "src/base/cpu.hpp"

#include <unistd.h>

#include <fstream>

namespace weft {

CpuSet allowed_cpus() {
    // A kernel with more than 1,024 processors refuses the small mask; those online, counted from 0, are near enough
    // there.
    CpuSet set;
    cpu_set_t mask;
    const bool known = sched_getaffinity(0, sizeof mask, &mask) == 0;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    for (int cpu = 0; cpu < 1024; ++cpu)
        if (known ? CPU_ISSET(cpu, &mask) : cpu < online) set.words[cpu / 64] |= 1ull << (cpu % 64);
    return set;
}

static size_t cache_bytes(int name) {
    const long bytes = sysconf(name);
    return bytes > 0 ? size_t(bytes) : 0;
}
size_t last_level_cache_bytes() { return cache_bytes(_SC_LEVEL3_CACHE_SIZE); }
size_t second_level_cache_bytes() { return cache_bytes(_SC_LEVEL2_CACHE_SIZE); }

bool kernel_copies_messages(int asked) {
    if (asked >= 0) return asked > 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    return !__builtin_cpu_is("amd");
#else
    return true;
#endif
}

std::string cpu_model() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);)
        if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
    return "unknown processor";
}

}  // namespace weft
