// msccl_rank_flow.hpp: the flow of chunks through one rank of an MSCCL program, step by step. Values.
#pragma once
#include <cstdint>
#include <vector>

#include "src/msccl/msccl_operands.hpp"

namespace weft::internal::msccl {

// The place of a chunk: input and output at the chunk's own place, scratch in a cell with any number.
struct BufferCell {
    Buffer buffer = Buffer::none;
    int64_t cell = -1;
    bool operator==(const BufferCell&) const = default;
};

// The action of a step on one chunk.
struct Move {
    int32_t chunk = 0;
    int32_t into = -1;  // the target's chunk, if it is another
    BufferCell source, target;
    BufferCell lifted;    // add: the place of the other operand before the addition; nowhere: the target itself
    bool left = false;    // `source` is the left operand of the two, as on all ranks that make this sum
    bool finish = false;  // the sum is complete
    // nothing: the chunk stays in place, or a later step makes its sum. receive: likewise, and the received chunk is in
    // `target` until then.
    enum MoveAction : uint8_t { step, nothing, receive } does = step;
    int32_t sum = -1;  // index in the rank's `sums`: the step makes this sum
};

// A sum of more than two operands at one place of a gpu. The last step of the place makes it, in the order of the
// lowest ranks of the operands.
struct RankOrderedSum {
    std::vector<BufferCell> operands;  // sorted
    size_t own = 0;                    // index of the former content of the place
    BufferCell received;               // where the last step keeps its received chunk; nowhere: it receives nothing
    BufferCell partial;                // for the sum of the operands before `own`
};

struct BlockFlow {
    std::vector<Move> moves;      // of all steps, chunk by chunk
    std::vector<StepId> senders;  // by step: the sender of the received message
    bool sends = false, receives = false;
};

struct RankFlow {
    std::vector<BlockFlow> blocks;
    std::vector<int32_t> kept;   // chunks that an in-place program leaves in place: copies from input to output
    std::vector<int32_t> saved;  // chunks of the input that are read from a cell, saved_cell()
    std::vector<RankOrderedSum> sums;
};

// Cells of scratch that Weft adds to those of the file. `sorted_cell` takes any number.
constexpr int64_t saved_cell(int32_t chunk) { return (int64_t(3) << 32) + chunk; }
constexpr int64_t sorted_cell(int32_t number) { return (int64_t(4) << 32) + number; }

}  // namespace weft::internal::msccl
