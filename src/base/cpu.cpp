#include "src/base/cpu.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "src/base/file.hpp"

namespace weft::internal {

CpuSet allowed_cpus() {
    // A kernel with more than 1,024 processors rejects the small mask; then the online processors, from 0 on, are a
    // good enough estimate.
    CpuSet set;
    cpu_set_t mask;
    const bool known = sched_getaffinity(0, sizeof mask, &mask) == 0;
    const long online = known ? 0 : sysconf(_SC_NPROCESSORS_ONLN);  // reads a file
    for (int cpu = 0; cpu < CpuSet::cpus_most; ++cpu)
        if (known ? CPU_ISSET(cpu, &mask) : cpu < online) set.add(cpu);
    return set;
}

CpuShare& CpuShare::operator|=(const CpuShare& other) {
    cpus |= other.cpus;
    unlimited |= other.unlimited;
    quotas.insert(other.quotas.begin(), other.quotas.end());
    return *this;
}

int CpuShare::cores() const {
    const int set = cpus.count();
    if (unlimited || quotas.empty()) return set;
    double time = 0;
    for (const auto& [group, cores] : quotas) time += cores;
    return time >= set ? set : std::max(1, int(time));
}

static std::string line_of(const std::string& file) {
    std::string line;
    std::istringstream stream(system_file(file));
    std::getline(stream, line);
    return line;
}

// "0-3,8".
static void take_away(CpuSet& set, const std::string& list) {
    const char* at = list.c_str();
    for (char* end; *at != 0; at = *end == ',' ? end + 1 : end) {
        const long first = strtol(at, &end, 10);
        if (end == at || first < 0) return;
        const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        for (long cpu = first; cpu <= last && cpu < CpuSet::cpus_most; ++cpu) set.take(int(cpu));
    }
}

size_t cache_bytes(int level, CpuSet cpus, const std::string& sys) {
    size_t bytes = 0;
    for (int cpu; (cpu = cpus.first()) >= 0;) {
        cpus.take(cpu);
        for (int index = 0;; ++index) {
            const std::string cache =
                sys + "/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index" + std::to_string(index) + "/";
            const std::string of_level = line_of(cache + "level");
            if (of_level.empty()) break;
            if (of_level != std::to_string(level)) continue;
            bytes += strtoull(line_of(cache + "size").c_str(), nullptr, 10) << 10;  // "32768K"
            take_away(cpus, line_of(cache + "shared_cpu_list"));
            break;
        }
    }
    if (bytes > 0) return bytes;
    // On some virtual machines this is the size of the whole socket's cache.
    const long known = sysconf(level == 2 ? _SC_LEVEL2_CACHE_SIZE : _SC_LEVEL3_CACHE_SIZE);
    return known > 0 ? size_t(known) : 0;
}

static CpuSet first_allowed() {
    CpuSet one;
    one.add(std::max(0, allowed_cpus().first()));
    return one;
}
size_t last_level_cache_bytes() { return cache_bytes(3, first_allowed()); }
size_t second_level_cache_bytes() { return cache_bytes(2, first_allowed()); }

std::string cpu_model(const std::string& cpuinfo) {
    std::istringstream file(cpuinfo);
    std::string arm;
    for (std::string line; std::getline(file, line);) {
        const size_t colon = line.find(':');
        if (colon == std::string::npos) continue;
        const std::string name = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
        const size_t begin = line.find_first_not_of(" \t", colon + 1);
        const std::string value = begin == std::string::npos ? std::string() : line.substr(begin);
        if (name == "model name" && !value.empty()) return value;
        // Kernels of 64-bit Arm tell no name of the model. The first processor stands for all.
        for (const char* const word : {"implementer", "variant", "part"})
            if (name == std::string("CPU ") + word && arm.find(word) == std::string::npos)
                arm += std::string(" ") + word + " " + value;
    }
    return arm.empty() ? "unknown processor" : "Arm" + arm;
}
std::string cpu_model() { return cpu_model(system_file("/proc/cpuinfo")); }

}  // namespace weft::internal
