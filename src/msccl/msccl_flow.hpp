// msccl_flow.hpp: runs an MSCCL program on the identities of chunks in place of data: which chunk of the whole each
// step finds and leaves in each place. One order of the steps is enough, because a program with a race is refused
// (msccl_races.hpp).
#pragma once
#include "src/msccl/msccl_rank_flow.hpp"

namespace weft::internal::msccl {

struct FollowOptions {
    bool save = false;  // steps read the input from cells of scratch that hold a copy of it
    bool sort = false;  // sums are in the order of ranks where possible: RankOrderedSum
};
Result<std::vector<RankFlow>> follow(const File& file, const Shape& shape, const FollowOptions& options);

}  // namespace weft::internal::msccl
