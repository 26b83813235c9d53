#include "src/base/control_groups.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <sstream>

#include "src/base/file.hpp"

namespace weft::internal {
namespace {

bool controls(const std::string& controllers, const std::string& wanted) {
    return ("," + controllers + ",").find("," + wanted + ",") != std::string::npos;
}

// Version 1 writes the largest multiple of a page for no limit; version 2 writes "max", which is not a number.
constexpr uint64_t no_limit = uint64_t(1) << 62;

uint64_t number_in(const std::string& file) {
    uint64_t value = 0;
    return std::istringstream(system_file(file)) >> value ? value : no_limit;
}

// The sum of the values that follow these names.
uint64_t sum_in(const std::string& file, std::initializer_list<const char*> names) {
    std::istringstream lines(system_file(file));
    uint64_t sum = 0;
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string name;
        uint64_t value = 0;
        if (words >> name >> value && std::find(names.begin(), names.end(), name) != names.end()) sum += value;
    }
    return sum;
}

uint64_t left_in(const std::string& folder, int version) {
    const uint64_t most = number_in(folder + (version == 2 ? "/memory.max" : "/memory.limit_in_bytes"));
    if (most >= no_limit) return no_limit;
    const uint64_t used = number_in(folder + (version == 2 ? "/memory.current" : "/memory.usage_in_bytes"));
    if (used >= no_limit) return no_limit;
    // The kernel drops cached files before it kills a process.
    const uint64_t cached = version == 2
                                ? sum_in(folder + "/memory.stat", {"inactive_file", "active_file"})
                                : sum_in(folder + "/memory.stat", {"total_inactive_file", "total_active_file"});
    const uint64_t needed = used - std::min(used, cached);
    return most - std::min(most, needed);
}

}  // namespace

std::vector<ControlGroup> control_groups(const std::string& self_cgroup, const std::string& controller) {
    std::vector<ControlGroup> groups;
    // "4:cpu,cpuacct:/docker/1234", "0::/user.slice"
    std::istringstream lines(self_cgroup);
    for (std::string line; std::getline(lines, line);) {
        const size_t one = line.find(':'), other = line.find(':', one + 1);
        if (one == std::string::npos || other == std::string::npos) continue;
        const std::string controllers = line.substr(one + 1, other - one - 1), path = line.substr(other + 1);
        if (path.find("..") != std::string::npos) continue;  // outside the mounted hierarchy
        std::vector<std::string> mounts;
        if (controllers.empty())
            mounts = {"fs/cgroup", "fs/cgroup/unified"};
        else if (controls(controllers, controller))
            mounts = {"fs/cgroup/" + controller, "fs/cgroup/" + controllers};
        if (mounts.size() == 2 && mounts[0] == mounts[1]) mounts.pop_back();
        for (const std::string& mount : mounts)
            for (std::string left = path;;) {
                while (!left.empty() && left.back() == '/') left.pop_back();
                groups.push_back({mount + left, controllers.empty() ? 2 : 1});
                if (left.empty()) break;
                left.resize(left.rfind('/') == std::string::npos ? 0 : left.rfind('/'));
            }
    }
    return groups;
}

std::vector<MemoryHeadroom> memory_headroom(const std::string& root) {
    std::vector<MemoryHeadroom> rooms;
    if (const uint64_t kib = sum_in(root + "/proc/meminfo", {"MemAvailable:"}); kib > 0)
        rooms.push_back({0, kib * 1024});
    const std::string self = system_file(root + "/proc/self/cgroup");
    for (const ControlGroup& group : control_groups(self.empty() ? "0::/" : self, "memory")) {
        const std::string folder = root + "/sys/" + group.folder;
        struct stat status;
        const uint64_t left = left_in(folder, group.version);
        // A folder's inode identifies its group, also in a container.
        if (left < no_limit && stat(folder.c_str(), &status) == 0) rooms.push_back({status.st_ino, left});
    }
    return rooms;
}

}  // namespace weft::internal
