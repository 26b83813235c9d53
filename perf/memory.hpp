// memory.hpp: whether the buffers of all ranks of a host fit.
// A benchmark checks this first because the kernel kills processes instead of refusing memory.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "rank.hpp"
#include "src/base/control_groups.hpp"

namespace perf {

// `bytes` is the need of each rank. Collective: each rank passes the headroom of its own host and groups.
// The ranks of a host share its memory, and the ranks of a control group share its limit.
// Returns empty text if this rank's buffers fit, else a sentence with the numbers.
std::string memory_lack(const std::vector<weft::internal::MemoryHeadroom>& rooms, size_t bytes, Rank& rank,
                        const std::vector<std::string>& hosts);

// The answer for rank `index`. `groups` are the control groups with a limit of all ranks, as text.
std::string memory_lack(const std::vector<weft::internal::MemoryHeadroom>& rooms, size_t bytes, int index,
                        const std::vector<std::string>& hosts, const std::vector<std::string>& groups);
// The control groups in `rooms`, as the text that ranks gather.
std::string groups_text(const std::vector<weft::internal::MemoryHeadroom>& rooms);

}  // namespace perf
