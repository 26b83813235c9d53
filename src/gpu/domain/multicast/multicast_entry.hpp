// multicast_entry.hpp: the entries of ranks that make a multicast object together. Values of whole 8-byte words.
#pragma once
#include <cstdint>

#include "src/net/fd_passing.hpp"

namespace weft::internal::cuda {

// Where the others find the first rank's object; 0 bytes: there is none.
struct MulticastEntry {
    FdServerAddress fd_server = {};
    uint64_t fds_id = 0;
    uint64_t bytes = 0;
};

// A rank's result of one step of SwitchedWindows.
struct SwitchEntry {
    uint64_t failed = 0;         // 1: the step failed on this rank
    MulticastEntry object = {};  // the first rank's, after the first step
};
static_assert(sizeof(SwitchEntry) % sizeof(uint64_t) == 0);

}  // namespace weft::internal::cuda
