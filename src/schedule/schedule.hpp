// schedule.hpp: a collective algorithm as data: for one rank, blocks of instructions over chunks. A value.
// It does not depend on the element count: the message is walked in tiles, the whole schedule runs once a tile, and
// chunk i of C is share i of the tile (chunk_bound). Where the collective has a part for each rank
// (base/collective.hpp) a tile is a piece of every part, and the chunks of part p are p*C/N and those behind it. Blocks
// run in parallel, each from tile to tile by itself; instructions of a block run in order. A connection (channel, from,
// to) has exactly one sending and one receiving block.
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
    int32_t root = -1;  // a rank, where the collective has one
    int32_t channels = 1;
    int32_t chunks = 1;
    int32_t tiles = 1;       // that one run walks; more than 1 only in pipelined expansions
    int32_t span = 1;        // chunks that the largest message of any rank holds
    int32_t fifo_depth = 0;  // slots a connection needs so that no run blocks forever; 0: no connections
    int32_t scratch = 0;     // cells of this rank's scratch; 0: it lies as a tile does, if it is used at all
    // Tiles that a slot of the flag block and scratch that lies as a tile does have room for, one behind the other: there,
    // and only there, chunks have numbers up to wide * chunks. More than 1 only where each part is one chunk.
    static constexpr int32_t wide_chunks_most = 1 << 14;  // a line each fills a slot of the flag block
    int32_t wide = 1;
    // Of a user's file: the messages that it is for, by the bytes of the whole.
    int64_t least_bytes = 0, most_bytes = INT64_MAX;
    // The ranks it needs a flag block of, ascending, this rank among them (perhaps alone, where others share one); empty: no
    // rank has a flag block.
    std::vector<int32_t> shared_ranks;
    std::vector<Block> blocks;
    bool operator==(const Schedule&) const = default;

    int parts() const { return parts_of(collective, ranks); }
    int part_of(int chunk) const { return chunk / (chunks / parts()); }
};

// The largest tile (of one part) of which every message fits a slot of `slot_bytes` (a multiple of 64); without
// messages no limit.
size_t largest_tile_bytes(const Schedule& schedule, size_t slot_bytes);
// Whether the flag block, if any, is one of all ranks.
bool shared_by_all(const Schedule& schedule);
// The fused instruction alone.
bool is_one_shot(const Schedule& schedule);
bool is_two_shot(const Schedule& schedule);
// Whether some instruction uses the rank's scratch.
bool has_scratch(const Schedule& schedule);
// What a slot of the flag block takes with tiles of `tile_bytes` a part.
size_t shared_slot_bytes(const Schedule& schedule, size_t tile_bytes);
// What that takes with tiles of `tile_bytes` a part.
size_t scratch_bytes(const Schedule& schedule, size_t tile_bytes);

const char* name_of(Opcode opcode);
const char* name_of(Buffer buffer);  // one of them
OpcodeKind kind_of(Opcode opcode);
const char* uses_of(Opcode opcode);  // letters as in instruction.def

}  // namespace weft::internal
