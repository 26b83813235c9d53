#include "src/base/cpu.hpp"

#include <unistd.h>

#include <fstream>

namespace weft {

int allowed_cores() {
    // A kernel with more than 1,024 processors refuses the small mask; the count online is near enough there.
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) == 0) return CPU_COUNT(&mask);
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? int(online) : 1;
}

static size_t cache_bytes(int name) {
    const long bytes = sysconf(name);
    return bytes > 0 ? size_t(bytes) : 0;
}
size_t last_level_cache_bytes() { return cache_bytes(_SC_LEVEL3_CACHE_SIZE); }
size_t second_level_cache_bytes() { return cache_bytes(_SC_LEVEL2_CACHE_SIZE); }

std::string cpu_model() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);)
        if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
    return "unknown processor";
}

}  // namespace weft
