// checker.hpp: proves the schedules of all ranks together. It simulates them symbolically, one operation after the
// other, over one flag block and one set of connections. One simulated order is enough: a step that can run stays able
// to run until its own block runs it. Races are found by happens-before, which does not depend on that order.
//
// The proof shows the following.
// * Every chunk of every output ends complete, with the contribution of each rank exactly once.
// * It is finished once, and by the same expression on all ranks.
// * Nothing deadlocks with the slots of a connection, and every send meets its receive.
// * Two accesses to a chunk are ordered if one of them writes.
// * A user's buffer belongs to the user before the call and after it.
// * A slot of the flag block is checked against all earlier tiles and operations.
// * No flag word is overwritten while a rank may still wait for it.
//
// Only posts and waits order ranks. Messages order more steps, so the checker can be too strict if messages guard
// memory of the flag block. Sums of contributions are compared by 64-bit hashes with weights of rank and chunk.
#pragma once
#include <span>

#include "src/base/result.hpp"
#include "src/checker/checked_operation.hpp"

namespace weft::internal {

// Reentrant. weftInvalidArgument: the sentence names operation, rank, block, step, instruction and chunk.
Status check(int ranks, std::span<const CheckedOperation> operations, const CheckOptions& options = {},
             Proved* proved = nullptr);

// Proves the schedules of a file, one for each rank in any order. Two operations of two runs each run out of place, in
// place and mixed, each with no, most and some empty chunks. With a flag block, or if blocks may be runs apart, there
// are enough runs to use all slots again. Fused instructions are proved in every mode, and a single two-shot also
// pipelined. For elementary ones, `mode` names the ranks whose buffers `either` reads in place.
Status check_set(std::span<const Schedule> schedules, const DirectMode& mode = {}, const CheckOptions& options = {},
                 Proved* proved = nullptr);

}  // namespace weft::internal
