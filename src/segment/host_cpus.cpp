#include "src/segment/host_cpus.hpp"

namespace weft::internal {

CpuSet cpus_of(const Segment& segment) {
    CpuSet all;
    for (const int rank : segment.locals()) all |= segment.row(rank).cpus;
    return all;
}

int cores_of(const Segment& segment) {
    CpuShare all;
    for (const int rank : segment.locals()) all.add(segment.row(rank).cpus, segment.row(rank).quota);
    return all.cores();
}

}  // namespace weft::internal
