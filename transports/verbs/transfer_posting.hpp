// transfer_posting.hpp: posts the requests of puts, gets and their confirmations to the lanes of a link.
#pragma once
#include <vector>

#include "transports/verbs/lanes/lane.hpp"

namespace weft::internal::verbs {

// A link's, for one call. Thread-bound to the thread that drives the endpoint.
struct PostingLanes {
    uint32_t link;
    std::vector<Lane>& all;
    const std::vector<size_t>& usable;  // places in `all` of those that carry messages now
    size_t striped_bytes;               // transfers from here on go over all lanes
    uint64_t part_bytes;                // of a request, at most
};

struct PostingOutcome {
    enum Kind : uint8_t { posted, full, refused } kind = posted;
    int error = 0;    // refused: an errno value
    size_t lane = 0;  // refused: the lane
};

// The lane of a part, if the first one takes `first`, and the others take the usable lanes behind it.
size_t lane_from(const std::vector<size_t>& usable, size_t first, size_t part);

// All requests of a transfer, or none if a send queue is full or no lane lives. If a lane refuses, the parts behind it count as ended.
PostingOutcome post_transfer(const PostingLanes& lanes, Outgoing& of, const Transfer& transfer);
// One read on each lane of transfers: it is executed after all earlier writes of its lane, and reads memory behind them.
PostingOutcome post_confirmation(const PostingLanes& lanes, Outgoing& of);

}  // namespace weft::internal::verbs
