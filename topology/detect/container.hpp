// container.hpp: the part of a host that a container may use: hardware threads by its processor set, time by its
// control groups.
#pragma once
#include "src/base/cpu.hpp"
#include "topology/detect/system_files.hpp"

namespace weft::internal::topology {

// Of the control group with the least time, among all groups of this process. Versions 1 and 2.
CpuQuota cpu_quota(SystemFiles& sys, SystemFiles& proc);
// Of this process; read once.
CpuQuota cpu_quota();
// Cores that this process may use, by processors and time.
int usable_cores();

}  // namespace weft::internal::topology
