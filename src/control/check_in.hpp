// check_in.hpp: the frames between a host's leader and the root during a rendezvous.
#pragma once
#include <cstdint>

namespace weft::internal {

enum class CheckInFrame : uint32_t {
    // Of the leader:
    host = 1,  // a HostEntry; with rank 0 among its members AgreedOptions and its tuning follow
    joined,    // processors, more members; with rank 0 as above
    failed,    // a failure: this host's ranks have given up
    // Of the root:
    waiting,     // text: the missing ranks
    refused,     // a failure; final
    rank_table,  // a RankTable; final
};

}  // namespace weft::internal
