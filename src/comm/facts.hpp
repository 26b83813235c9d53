// facts.hpp: facts about a communicator that the API reports or decides by.
#pragma once
#include <string>
#include <vector>

#include "src/comm/communicator.hpp"

namespace weft::internal {

// Bytes that the communicator holds on this rank.
struct MemoryUse {
    uint64_t flag_block, connections, heap, device;
};
MemoryUse memory_use(Communicator& communicator);
// The choice for an operation, as weftCommExplain prints it.
std::string explain(Communicator& communicator, const Operation& operation);
// Of each rank: the number of its host. Empty: all ranks are on one host.
std::vector<int> hosts_of_ranks(Communicator& communicator);
// The number of the communicator's device in this process, also if Weft cannot use the device.
Result<int> cuda_device(Communicator& communicator);
// Whether a blocking collective on host memory has cancellation points only where the code takes CancelHeld itself.
// Also while streams drive the communicator.
inline bool has_quick_calls(Communicator& communicator) {
    return !communicator.context().device && !communicator.calls().windows().any() &&
           communicator.context().segment->one_host();
}

}  // namespace weft::internal
