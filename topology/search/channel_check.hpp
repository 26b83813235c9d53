// channel_check.hpp: checks whether the channels of a graph file fit a job. A file may be written for another machine.
#pragma once
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "topology/search/search.hpp"

namespace weft::internal::topology {

// A sentence for each fault: missing devices, a ring without some GPU, unconnected stops, overloaded links. Fails with
// weftInvalidArgument if the job itself is wrong, or has machines of several kinds, which one file cannot describe.
Result<std::vector<std::string>> check_channels(const ChannelGraph& channels, const Job& job);

}  // namespace weft::internal::topology
