// container.hpp: what a container leaves of a host: hardware threads by its processor set, time by its control groups.
#pragma once
#include "src/base/cpu.hpp"
#include "topology/detect/system_files.hpp"

namespace weft::internal::topology {

// Of the control group that leaves this process the least time, of all that it is in. Versions 1 and 2.
CpuQuota cpu_quota(SystemFiles& sys, SystemFiles& proc);
// As the process finds it; looked up once.
CpuQuota cpu_quota();
// That this process may use: processors, and time.
int usable_cores();

}  // namespace weft::internal::topology
