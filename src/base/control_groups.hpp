// control_groups.hpp: the control groups of this process, and the memory that they and the host still have.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace weft::internal {

// Below /sys. Version 1 has a tree for each controller, version 2 one for all.
struct ControlGroup {
    std::string folder;
    int version;
};
// The groups of a controller, "cpu" or "memory", from the process's own up to the root. `self_cgroup` is the content of
// /proc/self/cgroup. In a container its path may be one of the host's and not exist here; then the container's own
// group is mounted as the root. Reentrant.
std::vector<ControlGroup> control_groups(const std::string& self_cgroup, const std::string& controller);

struct MemoryHeadroom {
    uint64_t group = 0;  // unique on this machine; 0: the machine itself
    uint64_t bytes = 0;  // that all members together can still allocate before the kernel kills one of them
};
// Of the host and of each control group with a limit; empty if nothing is known. `root` is for tests. Reentrant.
std::vector<MemoryHeadroom> memory_headroom(const std::string& root = "");

}  // namespace weft::internal
