// tiles.hpp: how much of a message a schedule handles at once: what the planner does with a call and what the simulator
// predicts of it are the same arithmetic.
#pragma once
#include "src/schedule/schedule.hpp"

namespace weft::internal {

// Slots of a usual connection.
inline constexpr int default_slots = 4;

// Bytes of each of a connection's slots where `slot_bytes` are those of the usual few: all slots of one with many take
// as much memory as those.
size_t slot_bytes_of(size_t slot_bytes, int fifo_depth);

// Bounds that a tile keeps to, in bytes; tiles of the whole are said before those of a part follow from them.
struct TileBounds {
    size_t wanted = 0;             // of the whole; 0: as large as may be
    size_t slot_bytes = 0;         // of a connection's slots
    size_t shared_slot_bytes = 0;  // of a rank's slot of the flag block, the most
    bool two_slots = true;         // do for the data of tiles that are read in order
};

// Of each part, not yet cut down to a shorter message. `bytes`: of a part.
size_t tile_bytes_of(const Schedule& schedule, size_t bytes, const TileBounds& bounds);

// Whether a two-shot of `bytes` goes faster where one loop body stages a tile, reduces the one before and hands out the
// one before that. It spares each tile a wait, and keeps memory busy where what is stored leaves the caches. Measured,
// perf/README.md.
bool pays_pipelined(const Schedule& schedule, size_t bytes, size_t tile_bytes);
// Whether each rank reads all that it wants of a tile of the flag block before it posts anything of the next one: Weft's own
// algorithms that have a flag block alone are one block, which goes from tile to tile. A user's may have several.
bool reads_in_order(const Schedule& schedule);

// How often the schedule runs, once a tile: an empty message still meets everybody.
constexpr uint64_t tiles_of(size_t bytes, size_t tile_bytes) {
    return bytes == 0 ? 1 : (bytes + tile_bytes - 1) / tile_bytes;
}

}  // namespace weft::internal
