// memory.hpp: whether the buffers of all ranks of a host fit. If they do not, the kernel kills processes instead of
// refusing memory, so a benchmark checks this first.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "rank.hpp"
#include "src/base/control_groups.hpp"

namespace perf {

// `bytes` is what each rank needs. Each rank brings its own rooms, and must call it. Empty: this rank's buffers fit.
// Else a sentence with the numbers: ranks of one host share its memory, those of one control group the group's.
std::string memory_lack(const std::vector<weft::internal::MemoryHeadroom>& rooms, size_t bytes, Rank& rank,
                        const std::vector<std::string>& hosts);

// Of rank `index`. `groups` are all ranks' control groups that have a limit, in text form.
std::string memory_lack(const std::vector<weft::internal::MemoryHeadroom>& rooms, size_t bytes, int index,
                        const std::vector<std::string>& hosts, const std::vector<std::string>& groups);
// The groups of the rooms, as gathered.
std::string groups_text(const std::vector<weft::internal::MemoryHeadroom>& rooms);

}  // namespace perf
