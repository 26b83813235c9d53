// schedule.hpp: a collective algorithm as data: for one rank, blocks of instructions over chunks. A value.
// It does not depend on the element count: the message is walked in tiles, the whole schedule runs once a tile, and
// chunk i of C is share i of the tile (chunk_bound). Blocks run in parallel, each from tile to tile by itself;
// instructions of a block run in order. A connection (channel, from, to) has exactly one sending and one receiving
// block.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/operation.hpp"

namespace weft {

enum class Opcode : uint8_t {
#define WEFT_INSTRUCTION(name, kind, uses, help) name,
#include "src/schedule/instruction.def"
#undef WEFT_INSTRUCTION
};
enum class OpcodeKind : uint8_t { connection, local, board, fused };

// Where a chunk lives. `input` and `output` are the call's buffers (the same memory if in place); `slot` is a rank's
// slot of the board for this tile. In a set of targets these are bits.
enum Buffer : uint8_t {
    none = 0,
    input = 1,   // this rank's send buffer
    output = 2,  // this rank's receive buffer
    slot = 4,  // source: the slot of rank `rank` (copy), or of every other rank (reduce); target: this rank's own slot
    inputs = 8,    // reduce only: every rank's send buffer, directly (registered memory)
    outputs = 16,  // reduce only: every rank's receive buffer, directly
    either = 32,   // reduce only: of each other rank its slot or, if it is readable (BoardMode), its send buffer
};

// base + (start + iteration * step) mod modulus: how an operand moves through the iterations of a repeated instruction.
struct Index {
    int32_t base = 0;
    int32_t start = 0;
    int32_t modulus = 1;
    int32_t step = 0;

    int at(int iteration) const {
        const int64_t turned = (start + int64_t(iteration) * step) % modulus;
        return base + int(turned < 0 ? turned + modulus : turned);
    }
    // Of a span that begins here: the place `offset` further on. A span ends where it ends, or, if the index has a
    // modulus, goes on at `base`.
    int at(int iteration, int offset) const {
        const int first = at(iteration);
        return modulus > 1 && first + offset >= base + modulus ? first + offset - modulus : first + offset;
    }
    Index then(int32_t next_step) const { return {base, start, modulus, next_step}; }
    bool operator==(const Index&) const = default;
};

// Runs after step `step` (instruction index, all its iterations) of block `block` of the same rank, in the same run of
// the schedule or in the one `ago` runs before (then what runs first in an operation waits for nothing).
struct Dependency {
    int32_t block = -1;
    int32_t step = -1;
    int32_t ago = 0;
    bool operator==(const Dependency&) const = default;
};

struct Instruction {
    Opcode opcode = Opcode::copy;
    Buffer source = Buffer::none;
    uint8_t targets = 0;  // bits of Buffer
    uint8_t phase = 0;    // post, wait: 0 or 1
    bool finish = false;  // the result is complete: the operation's last step (avg divides) is applied
    bool left = false;    // of the sum of a slot and source[chunk], the latter is the left operand
    int32_t repeat = 1;   // iterations; operands move by Index
    int32_t count = 1;    // a span: so many chunks one behind the other, which travel as one message
    Index chunk;          // the first of them
    Index rank;           // source slot: whose
    Dependency after;
    int32_t tile = 0;  // of the run's `tiles`: which one this instruction works on
    bool operator==(const Instruction&) const = default;
};

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
    int32_t channels = 1;
    int32_t chunks = 1;
    int32_t tiles = 1;       // that one run walks; more than 1 only in pipelined expansions
    int32_t span = 1;        // chunks that the largest message of any rank holds
    int32_t fifo_depth = 0;  // slots a connection needs so that no run blocks forever; 0: no connections
    // The ranks it needs a board of, ascending, this rank among them (perhaps alone, where others share one); empty: no
    // rank has a board.
    std::vector<int32_t> board;
    std::vector<Block> blocks;
    bool operator==(const Schedule&) const = default;
};

// Where chunk `index` of `chunks` begins in a tile of `tile_bytes`: shares as equal as 64-byte bounds allow; the last
// bound (index == chunks) is the end. 64 bytes hold a whole number of elements of every type.
inline size_t chunk_bound(size_t tile_bytes, int chunks, int index) {
    if (index >= chunks) return tile_bytes;
    const size_t exact = size_t((unsigned __int128)tile_bytes * unsigned(index) / unsigned(chunks));
    return std::min(tile_bytes, (exact + 63) / 64 * 64);
}

// The largest tile of which every message fits a slot of `slot_bytes` (a multiple of 64); without messages no limit.
size_t largest_tile_bytes(const Schedule& schedule, size_t slot_bytes);
// Whether the board, if any, is one of all ranks.
bool board_of_all(const Schedule& schedule);

const char* name_of(Opcode opcode);
const char* name_of(Buffer buffer);  // one of them
OpcodeKind kind_of(Opcode opcode);
const char* uses_of(Opcode opcode);  // letters as in instruction.def

}  // namespace weft
