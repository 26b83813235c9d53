// channel_check.hpp: whether the channels of a graph file fit a job: somebody wrote them for a machine, this one or
// another.
#pragma once
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "topology/search/search.hpp"

namespace weft::internal::topology {

// A sentence for each thing that does not fit: devices that do not exist, a ring that misses a GPU, stops that nothing
// joins, links that carry more than they can. weftInvalidArgument: the job itself is wrong, or its machines are of
// several kinds, which one file does not describe.
Result<std::vector<std::string>> check_channels(const ChannelGraph& channels, const Job& job);

}  // namespace weft::internal::topology
