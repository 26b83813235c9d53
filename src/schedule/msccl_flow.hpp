// msccl_flow.hpp: an MSCCL program walked with identities instead of data: which chunk of the whole each step finds and
// leaves in each place. One order of the steps tells all, unless the program has a race, which the checker finds in the
// schedules.
#pragma once
#include <cstdint>
#include <vector>

#include "src/schedule/msccl_order.hpp"
#include "src/schedule/msccl_xml.hpp"
#include "src/schedule/schedule.hpp"

namespace weft::msccl {

struct Shape {
    Collective collective = Collective::none;
    int32_t ranks = 1;
    int32_t chunks = 1;
    int32_t root = -1;
    int parts() const { return parts_of(collective, ranks); }
    int shares() const { return chunks / parts(); }
};

// Where a chunk lies: `input` and `output` at the chunk's own place, scratch in a cell, which any number names.
struct Where {
    Buffer buffer = Buffer::none;
    int64_t cell = -1;
    bool operator==(const Where&) const = default;
};

// What a step does with one chunk.
struct Move {
    int32_t chunk = 0;
    int32_t into = -1;  // the target's, where it is another
    Where source, target;
    Where lifted;         // add: what is added to lies there yet; nowhere: in the target
    bool left = false;    // of the two operands that of `source` is the left one: alike on all ranks that make this sum
    bool finish = false;  // the sum is complete
};

struct BlockFlow {
    std::vector<Move> moves;         // of all steps, chunk by chunk
    std::vector<StepPlace> senders;  // by step: of the message that it receives
    bool sends = false, receives = false;
};

struct RankFlow {
    std::vector<BlockFlow> blocks;
    std::vector<int32_t> kept;   // chunks that an in-place program leaves where they are: input to output
    std::vector<int32_t> saved;  // chunks of the input that are read from a cell, saved_cell()
};

// No cell of the file's.
constexpr int64_t saved_cell(int32_t chunk) { return (int64_t(3) << 32) + chunk; }

// `save`: steps find the input in cells of scratch, into which it was copied beforehand.
Result<std::vector<RankFlow>> follow(const File& file, const Shape& shape, bool save);

}  // namespace weft::msccl
