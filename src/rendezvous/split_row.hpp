// split_row.hpp: a rank's part of a split of its communicator, in its row of the segment (segment/rank_row.hpp). Plain data.
#pragma once
#include <atomic>
#include <cstdint>

#include "weft/types.h"

namespace weft::internal {

// State of a rank while ranks of this host split this communicator (split_rendezvous.hpp). Each word holds a child's
// number. All ranks of a child read the words of its first rank.
struct alignas(64) SplitRow {
    std::atomic<uint64_t> wanted;    // this rank has come to make that child
    std::atomic<uint64_t> offered;   // the child's segment is `inode`, `fd` in this rank's process (release)
    std::atomic<uint64_t> refused;   // some rank may not open that segment
    std::atomic<uint64_t> fallback;  // so the child's ranks meet by `id` (release)
    std::atomic<uint64_t> failed;    // this rank has given up that child
    int32_t fd;
    uint64_t inode;
    unsigned char id[WEFT_UNIQUE_ID_BYTES];
};

}  // namespace weft::internal
