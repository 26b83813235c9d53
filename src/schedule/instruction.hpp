// instruction.hpp: one line of a schedule as a plain value, and the place of its chunks in a tile. Shared by the step
// machine of the host and that of the device (src/gpu/kernels), which compiles this file as device code.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/schedule/opcode.hpp"

namespace weft::internal {

// The place of a chunk. `input` and `output` are the buffers of the call, the same memory if in place. `slot` is a
// rank's slot of the flag block for this tile. `scratch` is the rank's own memory for one tile at a time. It has the
// layout of a tile, or cells that hold any one chunk each (Schedule::scratch). In a set of targets these are bits.
enum Buffer : uint8_t {
    none = 0,
    input = 1,     // this rank's send buffer
    output = 2,    // this rank's receive buffer
    slot = 4,      // source: the slot of rank `rank` (copy), of every other rank (reduce), or this rank's own
                   // (connections); target: this rank's own
    inputs = 8,    // only reduce: the send buffer of every rank, accessed directly (registered memory)
    outputs = 16,  // only reduce: the receive buffer of every rank, accessed directly
    either = 32,   // only reduce: of each other rank its slot or, if readable (DirectMode), its send buffer
    scratch = 64,
};

// base + (start + iteration * step) mod modulus: the position of an operand in each iteration of a repeated
// instruction.
struct Index {
    int32_t base = 0;
    int32_t start = 0;
    int32_t modulus = 1;
    int32_t step = 0;

    constexpr int at(int iteration) const {
        if (modulus == 1) return base;  // saves a division
        const int64_t turned = (start + int64_t(iteration) * step) % modulus;
        return base + int(turned < 0 ? turned + modulus : turned);
    }
    // The place at `offset` in a span that begins here. If the index has a modulus, the span wraps around to `base`.
    constexpr int at(int iteration, int offset) const {
        const int first = at(iteration);
        return modulus > 1 && first + offset >= base + modulus ? first + offset - modulus : first + offset;
    }
    constexpr Index then(int32_t next_step) const { return {base, start, modulus, next_step}; }
    bool operator==(const Index&) const = default;
};

struct Instruction {
    Opcode opcode = Opcode::copy;
    Buffer source = Buffer::none;
    uint8_t targets = 0;  // bits of Buffer
    uint8_t phase = 0;    // post, wait: 0 or 1
    bool finish = false;  // the result is complete: the last step of the reduction (avg divides) is applied
    bool left = false;    // source[chunk] is the left operand of the sum, before a slot or target
    int32_t repeat = 1;   // iterations; operands move by Index
    int32_t count = 1;    // a span: so many consecutive chunks, which travel as one message
    Index chunk;          // the first of them
    Index rank;           // source slot: its rank
    bool moves = false;   // the chunk of the targets is `into`; else it is `chunk`
    Index into;
    // Of scratch with cells: the cell that the chunk is read from, and the one that it is written to. -1: scratch has
    // the layout of a tile.
    int32_t source_cell = -1;
    int32_t target_cell = -1;
    Dependency after;
    int32_t tile = 0;  // of the run's `tiles`: the one of this instruction
    bool operator==(const Instruction&) const = default;
};

// Bytes of tile `tile` of a message of `bytes`; 0 after its end.
constexpr size_t tile_length(size_t bytes, size_t tile_bytes, uint64_t tile) {
    return std::min<size_t>(tile_bytes, bytes - std::min<size_t>(bytes, tile * tile_bytes));
}

// The begin of chunk `index` of `chunks` in a tile of `tile_bytes`. Shares are as equal as multiples of 64 bytes allow.
// The last bound (index == chunks) is the end. 64 bytes hold a whole number of elements of every type.
constexpr size_t chunk_bound(size_t tile_bytes, int chunks, int index) {
    if (index == 0) return 0;
    if (index >= chunks) return tile_bytes;
    // tile_bytes * index / chunks, without overflow of the product.
    const size_t whole = tile_bytes / unsigned(chunks), rest = tile_bytes % unsigned(chunks);
    const size_t exact = whole * unsigned(index) + rest * unsigned(index) / unsigned(chunks);
    return std::min<size_t>(tile_bytes, (exact + 63) / 64 * 64);
}
// The same if the whole has parts. A tile has the same piece of each part, `tile_bytes` long, one after the other, and
// each part has the same number of chunks.
constexpr size_t chunk_bound(size_t tile_bytes, int chunks, int parts, int index) {
    if (parts == 1) return chunk_bound(tile_bytes, chunks, index);
    const int shares = chunks / parts;
    return size_t(index / shares) * tile_bytes + chunk_bound(tile_bytes, shares, index % shares);
}

// Bytes of a cell of scratch for the chunks of tiles of `tile_bytes` a part. Bounds are rounded up, so a chunk is at
// most its exact share rounded up.
constexpr size_t cell_bytes(size_t tile_bytes, int shares) {
    const size_t share = tile_bytes / unsigned(shares) + (tile_bytes % unsigned(shares) != 0);
    return (share + 63) / 64 * 64;
}

// Consecutive bytes of a tile.
struct ChunkRange {
    size_t tile_offset, bytes;
};
constexpr ChunkRange chunk_range(size_t tile_bytes, int chunks, int first, int count, int parts = 1) {
    const size_t begin = chunk_bound(tile_bytes, chunks, parts, first);
    return {begin, chunk_bound(tile_bytes, chunks, parts, first + count) - begin};
}

// The chunks of an instruction: one range, or two if they wrap around. Together they have `bytes`.
struct ChunkSpan {
    ChunkRange pieces[2];
    int count;
    size_t bytes;
};
constexpr ChunkSpan chunk_span(const Index& chunk, int chunk_count, int iteration, size_t tile_bytes, int chunks,
                               int parts) {
    const int first = chunk.at(iteration);
    const int until_end = chunk.modulus > 1 ? chunk.base + chunk.modulus - first : chunk_count;
    if (chunk_count <= until_end) {
        const ChunkRange all = chunk_range(tile_bytes, chunks, first, chunk_count, parts);
        return {{all, {}}, 1, all.bytes};
    }
    const ChunkRange head = chunk_range(tile_bytes, chunks, first, until_end, parts),
                     tail = chunk_range(tile_bytes, chunks, chunk.base, chunk_count - until_end, parts);
    return {{head, tail}, 2, head.bytes + tail.bytes};
}
constexpr ChunkSpan chunk_span(const Instruction& instruction, int iteration, size_t tile_bytes, int chunks,
                               int parts = 1) {
    return chunk_span(instruction.chunk, instruction.count, iteration, tile_bytes, chunks, parts);
}

// Maps a tile to a buffer that holds the whole: bytes that are consecutive in both.
struct Piece {
    size_t tile_offset, offset, bytes;  // offset: in the whole
};
struct Tiling {
    size_t part_bytes;  // of the whole message
    size_t tile_bytes;  // of a part: the tile's piece of each
    // The consecutive bytes from `tile_offset` on, at most `bytes`, in tile number `tile`, whose parts have `length`.
    constexpr Piece piece(uint64_t tile, size_t length, size_t tile_offset, size_t bytes) const {
        if (length == part_bytes) return {tile_offset, tile_offset, bytes};  // one tile is the whole
        const size_t part = tile_offset / length, inside = tile_offset % length;
        return {tile_offset, part * part_bytes + tile * tile_bytes + inside, std::min(bytes, length - inside)};
    }
};

}  // namespace weft::internal
