// peer_buffers.hpp: the buffers for each peer in a collective of uneven parts.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace weft::internal {

// The data that a call sends to, or receives from, a rank.
struct PeerBuffer {
    int peer;
    void* data;
    uint64_t count;
};
// Counts and displacements in device memory: elements, by rank. Kernels read them; the host does not know the buffers.
struct CountsOnDevice {
    const uint64_t *sent, *send_places, *received, *receive_places;
    uint64_t send_room, receive_room;  // elements from the buffer to the end of its allocation, at most
};
struct PeerBuffers {
    std::vector<PeerBuffer> sends, receives;
    CountsOnDevice counts = {};  // null: the lists are complete
};

// The error text for two parts in recvbuff: the first has `count` elements, the second begins `behind` elements after
// the first one's begin.
std::string overlapping_parts(int first, int second, uint64_t count, uint64_t behind, const char* counts_name);
// The error text if the data sent to one rank overlaps the data received from one.
std::string overlapping_buffers(int to, int from);

}  // namespace weft::internal
