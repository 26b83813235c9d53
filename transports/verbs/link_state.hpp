// link_state.hpp: the lanes and flows of a link.
#pragma once
#include <memory>
#include <vector>

#include "transports/verbs/lanes/lane.hpp"

namespace weft::internal::verbs {

// Owned by the link. Thread-bound to the thread that drives the endpoint.
struct LinkState {
    uint32_t index = 0;
    int self = 0, peer = 0;
    std::vector<std::shared_ptr<Outgoing>> outgoing;  // by connection
    std::vector<std::shared_ptr<Incoming>> incoming;
    bool flushes = false;     // a receiver's slots are, or were, in the memory of a GPU that needs flushes
    std::vector<Lane> lanes;  // end first: until then, peers may write to the memory of connections
};

}  // namespace weft::internal::verbs
