// hardware_cpus.cpp: reads processors from /sys and /proc, for hosts without hwloc, and the identity of the host.
#include <sys/utsname.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "topology/detect/hardware.hpp"

namespace weft::internal::topology {

namespace {

// "2048K"
int64_t bytes_of(const std::string& text) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || value <= 0 || value > int64_t(1) << 40) return 0;
    const char unit = end < text.data() + text.size() ? *end : ' ';
    return unit == 'K' ? value << 10 : unit == 'M' ? value << 20 : value;
}

// FNV-1a, 64 bits: the same on every run and machine.
uint64_t hash_of(const std::string& text) {
    uint64_t hash = 0xcbf29ce484222325;
    for (const char letter : text) hash = (hash ^ uint8_t(letter)) * 0x100000001b3;
    return hash;
}

// "vendor_id\t: GenuineIntel" of the first processor.
std::string of_cpuinfo(const std::string& cpuinfo, const char* name) {
    size_t begin = cpuinfo.find(std::string(name) + '\t');
    if (begin == std::string::npos) return {};
    begin = cpuinfo.find(": ", begin);
    if (begin == std::string::npos) return {};
    return cpuinfo.substr(begin + 2, cpuinfo.find('\n', begin) - begin - 2);
}

int number_in(const std::string& text) {
    int value = unknown;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && value >= 0 ? value : unknown;
}

void identify(SystemFiles& proc, Hardware& hardware) {
    const std::string name = proc.text("sys/kernel/hostname").value_or(""),
                      boot = proc.text("sys/kernel/random/boot_id").value_or("");
    if (!boot.empty()) hardware.host = fmt::format("0x{:x}", hash_of(name + boot));
    if (hardware.arch.empty()) {
        utsname system{};
        hardware.arch = proc.text("sys/kernel/arch").value_or(uname(&system) == 0 ? system.machine : "");
    }
    // NCCL's names.
    if (hardware.arch == "aarch64") hardware.arch = "arm64";
    if (hardware.arch == "ppc64le") hardware.arch = "ppc64";
    const std::string cpuinfo = proc.text("cpuinfo").value_or("");
    if (hardware.vendor.empty()) hardware.vendor = of_cpuinfo(cpuinfo, "vendor_id");
    if (hardware.family == unknown) hardware.family = number_in(of_cpuinfo(cpuinfo, "cpu family"));
    if (hardware.model == unknown) hardware.model = number_in(of_cpuinfo(cpuinfo, "model"));
}

// Cores, caches and packages, of each thread.
void add_threads(SystemFiles& sys, Hardware& hardware) {
    const bool packages = hardware.packages.empty(), cores = hardware.cores.empty(), caches = hardware.caches.empty();
    std::map<int, CpuMask> package_threads;
    std::set<CpuMask> core_threads;
    std::set<std::pair<int, CpuMask>> seen;
    const int last = packages || cores || caches ? hardware.online.last() : -1;
    for (int thread = 0; thread <= last; ++thread) {
        if (!hardware.online.contains(thread)) continue;
        const std::string folder = fmt::format("devices/system/cpu/cpu{}/", thread);
        if (packages)
            if (const auto number = sys.number(folder + "topology/physical_package_id"); number && *number >= 0)
                package_threads[int(std::min<long long>(*number, 65'535))].add(thread);
        if (cores)
            if (const auto list = sys.text(folder + "topology/thread_siblings_list"))
                core_threads.insert(CpuMask::from_list(*list));
        for (int index = 0; caches && index < 16; ++index) {
            const std::string cache = folder + fmt::format("cache/index{}/", index);
            const auto level = sys.number(cache + "level");
            if (!level) break;
            const int64_t bytes = bytes_of(sys.text(cache + "size").value_or(""));
            if (*level < 2 || *level > 9 || bytes == 0 || sys.text(cache + "type").value_or("") == "Instruction")
                continue;
            CpuMask threads = CpuMask::from_list(sys.text(cache + "shared_cpu_list").value_or(""));
            if (threads.empty()) threads.add(thread);
            if (seen.insert({int(*level), threads}).second)
                hardware.caches.push_back({int(*level), bytes, std::move(threads)});
        }
    }
    for (auto& [number, threads] : package_threads) hardware.packages.push_back({number, std::move(threads)});
    if (cores) hardware.cores.assign(core_threads.begin(), core_threads.end());
}

}  // namespace

void add_cpus(SystemFiles& sys, SystemFiles& proc, Hardware& hardware) {
    identify(proc, hardware);
    if (hardware.online.empty())
        hardware.online = CpuMask::from_list(sys.text("devices/system/cpu/online").value_or(""));
    if (hardware.domains.empty()) {
        for (const std::string& name : sys.names("devices/system/node")) {
            const int number = name.compare(0, 4, "node") == 0 ? number_in(name.substr(4)) : unknown;
            if (number == unknown) continue;
            CpuMask threads = CpuMask::from_list(sys.text("devices/system/node/" + name + "/cpulist").value_or(""));
            if (!threads.empty()) hardware.domains.push_back({number, std::move(threads)});
        }
    }
    add_threads(sys, hardware);
}

}  // namespace weft::internal::topology
