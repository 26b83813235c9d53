// schedule.hpp: a collective algorithm as data: for one rank, blocks of instructions over chunks. A value.
//
// A schedule does not depend on the element count. A message is a sequence of tiles, and the schedule runs once for
// each tile. Chunk i of C is share i of the tile (chunk_bound). If the collective has one part for each of N ranks
// (base/collective.hpp), a tile contains a piece of every part, and part p has the C/N chunks from p*C/N on.
//
// Blocks run in parallel, and each goes from tile to tile by itself. The instructions of a block run in order. A
// connection (channel, from, to) has exactly one sending and one receiving block.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/operation.hpp"
#include "src/schedule/instruction.hpp"

namespace weft::internal {

struct Block {
    int32_t channel = 0;
    int32_t source = -1;  // the rank this block receives from, -1: none
    int32_t target = -1;  // the rank this block sends to, -1: none
    std::vector<Instruction> instructions;
    bool operator==(const Block&) const = default;
};

struct Schedule {
    std::string algorithm;
    Collective collective = Collective::none;
    int32_t rank = 0;
    int32_t ranks = 1;
    int32_t root = -1;  // a rank, if the collective has a root
    int32_t channels = 1;
    int32_t chunks = 1;
    int32_t tiles = 1;       // tiles of one run; more than 1 only in pipelined expansions
    int32_t span = 1;        // chunks in the largest message of any rank
    int32_t fifo_depth = 0;  // slots that a connection needs to avoid deadlock; 0: no connections
    int32_t scratch = 0;     // cells of this rank's scratch; 0: scratch has the layout of a tile
    // The number of tiles that fit a slot of the flag block, and scratch with the layout of a tile. Only there, chunks
    // have numbers up to wide * chunks. More than 1 only if each part is one chunk.
    // with a cache line for each, they fill a slot of the flag block
    static constexpr int32_t wide_chunks_most = 1 << 14;
    int32_t wide = 1;
    // Of a user's file: the range of messages, in bytes of the whole.
    int64_t least_bytes = 0, most_bytes = INT64_MAX;
    // The ranks that share the flag block, ascending, with this rank among them (perhaps alone, if others share one).
    // Empty: no rank has a flag block.
    std::vector<int32_t> shared_ranks;
    std::vector<Block> blocks;
    bool operator==(const Schedule&) const = default;

    int parts() const { return parts_of(collective, ranks); }
    int part_of(int chunk) const { return chunk / (chunks / parts()); }
};

// The largest tile (of one part) whose messages all fit slots of `slot_bytes`, a multiple of 64. Without messages there
// is no limit.
size_t largest_tile_bytes(const Schedule& schedule, size_t slot_bytes);
// Whether all ranks share the flag block, if there is one.
bool shared_by_all(const Schedule& schedule);
// Whether the schedule is the one fused instruction.
bool is_one_shot(const Schedule& schedule);
bool is_two_shot(const Schedule& schedule);
// Whether some instruction uses the rank's scratch.
bool has_scratch(const Schedule& schedule);
// Bytes of a slot of the flag block for tiles of `tile_bytes` a part.
size_t shared_slot_bytes(const Schedule& schedule, size_t tile_bytes);
// Bytes of scratch for tiles of `tile_bytes` a part.
size_t scratch_bytes(const Schedule& schedule, size_t tile_bytes);

const char* name_of(Opcode opcode);
const char* name_of(Buffer buffer);  // one of them

}  // namespace weft::internal
