// msccl_flow.hpp: an MSCCL program walked with identities instead of data: which chunk of the whole each step finds and
// leaves in each place. One order of the steps tells all, for a program that has a race is refused (msccl_races.hpp).
#pragma once
#include <cstdint>
#include <vector>

#include "src/msccl/msccl_operands.hpp"
#include "src/msccl/msccl_xml.hpp"
#include "src/schedule/schedule.hpp"

namespace weft::internal::msccl {

// BufferCell a chunk lies: `input` and `output` at the chunk's own place, scratch in a cell, which any number names.
struct BufferCell {
    Buffer buffer = Buffer::none;
    int64_t cell = -1;
    bool operator==(const BufferCell&) const = default;
};

// What a step does with one chunk.
struct Move {
    int32_t chunk = 0;
    int32_t into = -1;  // the target's, where it is another
    BufferCell source, target;
    BufferCell lifted;    // add: what is added to lies there yet; nowhere: in the target
    bool left = false;    // of the two operands that of `source` is the left one: alike on all ranks that make this sum
    bool finish = false;  // the sum is complete
    // nothing: a chunk stays where it is, or its sum is made in a later step. receive: likewise, and what came lies in
    // `target` until then.
    enum MoveAction : uint8_t { step, nothing, receive } does = step;
    int32_t sum = -1;  // of the rank's `sums`: the step makes this one
};

// A sum of more than two operands that one place of a gpu gathers. The last of the place's steps makes it, in the order
// of the operands' lowest ranks, whatever the order of the steps.
struct RankOrderedSum {
    std::vector<BufferCell> operands;  // in that order
    size_t own = 0;                    // index of what lay in the place before
    BufferCell received;               // where the last step keeps what it receives; nowhere: it receives nothing
    BufferCell partial;                // for the sum of what goes before `own`
};

struct BlockFlow {
    std::vector<Move> moves;      // of all steps, chunk by chunk
    std::vector<StepId> senders;  // by step: of the message that it receives
    bool sends = false, receives = false;
};

struct RankFlow {
    std::vector<BlockFlow> blocks;
    std::vector<int32_t> kept;   // chunks that an in-place program leaves where they are: input to output
    std::vector<int32_t> saved;  // chunks of the input that are read from a cell, saved_cell()
    std::vector<RankOrderedSum> sums;
};

// Cells of scratch that Weft adds to the file's. `sorted_cell` takes any number.
constexpr int64_t saved_cell(int32_t chunk) { return (int64_t(3) << 32) + chunk; }
constexpr int64_t sorted_cell(int32_t number) { return (int64_t(4) << 32) + number; }

struct FollowOptions {
    bool save = false;  // steps find the input in cells of scratch, into which it was copied beforehand
    bool sort = false;  // sums in the order of ranks where they can be: RankOrderedSum
};
Result<std::vector<RankFlow>> follow(const File& file, const Shape& shape, const FollowOptions& options);

}  // namespace weft::internal::msccl
