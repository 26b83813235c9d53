// rails.hpp: by which NIC each rank of a job leaves its host. Ranks of different hosts that have the same one are on a
// rail: in many clusters what leaves by a NIC reaches the NICs of its index by the fewest switches.
#pragma once
#include <cstdint>
#include <vector>

#include "topology/search/job.hpp"

namespace weft::internal::topology {

// By rank: the index of the port nearest to it among its host set's, by their numbers; of equally near ones the widest,
// of those the one that the fewest ranks before it have. unknown: it has a way to none. A function of the job alone; the
// job is one that place() takes.
std::vector<int32_t> rails_of(const Job& job);

}  // namespace weft::internal::topology
