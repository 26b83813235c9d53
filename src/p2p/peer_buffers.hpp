// peer_buffers.hpp: who gives whom how much in a collective of uneven parts.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace weft::internal {

// What a call sends to or receives from a rank.
struct PeerBuffer {
    int peer;
    void* data;
    uint64_t count;
};
// Counts and displacements in device memory: elements, by rank. Kernels read them, so the host knows no per-peer buffers.
struct CountsOnDevice {
    const uint64_t *sent, *send_places, *received, *receive_places;
    uint64_t send_room, receive_room;  // elements from a buffer's begin to its allocation's end, at most
};
struct PeerBuffers {
    std::vector<PeerBuffer> sends, receives;
    CountsOnDevice counts = {};  // null: the lists say all
};

// Of parts in recvbuff, of which the first has so many elements, and the second begins so many behind its begin.
std::string overlapping_parts(int first, int second, uint64_t count, uint64_t behind, const char* counts_name);
// What goes to one rank, and what comes from one.
std::string overlapping_buffers(int to, int from);

}  // namespace weft::internal
