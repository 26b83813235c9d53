// rails.hpp: the NIC by which each rank of a job leaves its host. Ranks of different hosts with the same index are on a
// rail: in many clusters, NICs of one index are connected by the fewest switches.
#pragma once
#include <cstdint>
#include <vector>

#include "topology/search/job.hpp"

namespace weft::internal::topology {

// By rank: the index of the nearest port among those of its host set. Among equally near ones the widest wins, then the
// one with the fewest ranks before. unknown: there is no path to a port. Depends only on the job, which place() must
// accept.
std::vector<int32_t> rails_of(const Job& job);

}  // namespace weft::internal::topology
