// check_in.hpp: what a host's leader and the root send each other while the ranks meet.
#pragma once
#include <cstdint>

namespace weft::internal {

// Kinds of frames between a host's leader and the root.
enum class CheckInFrame : uint32_t {
    host = 1,    // a HostEntry; with rank 0 among its members AgreedOptions and its tuning follow
    joined,      // processors, more members; with rank 0 as above
    failed,      // code, text: this host's ranks have given up
    waiting,     // from here on from the root: text, who is missing
    refused,     // code, text: final
    rank_table,  // a RankTable, final
};

}  // namespace weft::internal
