// host_cpus.hpp: the processors that the ranks of one host share.
#pragma once
#include "src/base/cpu.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

// Union of the processors that the ranks of this host may run on.
CpuSet cpus_of(const Segment& segment);
// Number of cores that the ranks of this host may use together.
int cores_of(const Segment& segment);

}  // namespace weft::internal
