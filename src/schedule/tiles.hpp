// tiles.hpp: how much of a message a schedule handles at once: what the planner does with a call and what the simulator
// predicts of it are the same arithmetic.
#pragma once
#include "src/schedule/schedule.hpp"

namespace weft {

// Slots of a usual connection.
inline constexpr int few_slots = 4;

// Bytes of each of a connection's slots where `slot_bytes` are those of the usual few: all slots of one with many take
// as much memory as those.
size_t slot_bytes_of(size_t slot_bytes, int fifo_depth);

// Bounds that a tile keeps to, in bytes; tiles of the whole are said before those of a part follow from them.
struct TileBounds {
    size_t wanted = 0;       // of the whole; 0: as large as may be
    size_t slot_bytes = 0;   // of a connection's slots
    size_t board_bytes = 0;  // of a rank's slot of the board, the most
};

// Of each part, not yet cut down to a shorter message. `bytes`: of a part.
size_t tile_bytes_of(const Schedule& schedule, size_t bytes, const TileBounds& bounds);

// How often the schedule runs, once a tile: an empty message still meets everybody.
constexpr uint64_t tiles_of(size_t bytes, size_t tile_bytes) {
    return bytes == 0 ? 1 : (bytes + tile_bytes - 1) / tile_bytes;
}

}  // namespace weft
