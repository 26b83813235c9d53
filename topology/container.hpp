// container.hpp: what a container leaves of a host: hardware threads by its processor set, time by its control groups.
#pragma once
#include <string>
#include <vector>

#include "topology/system_files.hpp"

namespace weft::topology {

// Cores' worth of time that the control groups of this process give it, the least of all that it is in; 0: no limit, or
// unknown. Versions 1 and 2.
double cpu_quota(SystemFiles& sys, SystemFiles& proc);

}  // namespace weft::topology
