// tiles.hpp: the size of tiles. The planner and the simulator use the same arithmetic.
#pragma once
#include "src/schedule/schedule.hpp"

namespace weft::internal {

// The depth of a connection's FIFO, unless a schedule asks for more.
inline constexpr int default_slots = 4;

// Bytes of each slot of a connection with `fifo_depth` slots, if `slot_bytes` is the size with the default depth. All
// slots of a deeper FIFO together take as much memory.
size_t slot_bytes_of(size_t slot_bytes, int fifo_depth);

// Bounds of a tile, in bytes. Those of the whole come first; those of a part follow from them.
struct TileBounds {
    size_t wanted = 0;             // of the whole; 0: as large as possible
    size_t slot_bytes = 0;         // of a connection's slots
    size_t shared_slot_bytes = 0;  // the most of a rank's slot of the flag block
    bool two_slots = true;         // two slots are enough for tiles that are read in order
};

// Of each part, before the limit of a shorter message. `bytes`: of one part.
size_t tile_bytes_of(const Schedule& schedule, size_t bytes, const TileBounds& bounds);

// Whether a two-shot of `bytes` is faster if one loop body stages a tile, reduces the tile before and copies out the
// one before that. This saves a wait for each tile, and keeps the memory busy while non-temporal stores go there
// (perf/results).
bool pays_pipelined(const Schedule& schedule, size_t bytes, size_t tile_bytes);
// Whether each rank reads all that it needs of a tile of the flag block before it posts anything of the next tile. True
// for Weft's own algorithms with only a flag block, because they have one block. A user's algorithm may have several.
bool reads_in_order(const Schedule& schedule);

// How often the schedule runs: once for each tile. An empty message also synchronises all ranks.
constexpr uint64_t tiles_of(size_t bytes, size_t tile_bytes) {
    return bytes == 0 ? 1 : (bytes + tile_bytes - 1) / tile_bytes;
}

}  // namespace weft::internal
