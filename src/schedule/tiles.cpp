#include "src/schedule/tiles.hpp"

#include <algorithm>

namespace weft {

namespace {

constexpr size_t line = 64;

// How much of a message a board algorithm handles at once: small enough that what a rank reads and writes of a tile stays
// in its second-level cache, large enough that two waits a tile do not count: 64 KiB of it for each rank to reduce, and
// more where memory is the limit anyway and a wait costs more than a second-level miss. On one host few ranks take more:
// the slots of all, which go round, fit the caches. Many take less: they shall leave the last-level cache to the buffers,
// and of messages whose results are stored past it take twice as much. Measured, perf/README.md. Where a host has only
// some of the ranks all count all the same: what travels between hosts is cut into as many pieces more.
size_t board_tile_bytes(size_t bytes, int ranks, bool one_host, size_t most) {
    const size_t each = size_t(ranks);
    const size_t least = bytes < 8 << 20 ? 128 << 10 : bytes < 32 << 20 ? 256 << 10 : 512 << 10;
    size_t wanted = (bytes < 32 << 20 ? 64 << 10 : 128 << 10) * each;
    if (one_host) {
        // What the slots of all ranks take, so long as that is a tile.
        const auto slots_hold = [&](size_t all) { return all / (few_slots * each) / line * line; };
        wanted = std::min(wanted, slots_hold(bytes < 4 << 20 ? 8 << 20 : 16 << 20));
        wanted = std::max(wanted, slots_hold(4 << 20));
    }
    return std::min(std::max(wanted, least), most);
}

}  // namespace

size_t slot_bytes_of(size_t slot_bytes, int fifo_depth) {
    constexpr size_t few = few_slots, least = 1 << 10;
    const size_t slots = std::max(few, size_t(fifo_depth));
    return slots == few ? slot_bytes : std::max(least, slot_bytes * few / slots / line * line);
}

size_t tile_bytes_of(const Schedule& schedule, size_t bytes, const TileBounds& bounds) {
    const size_t parts = size_t(schedule.parts());
    const auto of_a_part = [&](size_t tile) { return std::max(line, tile / parts / line * line); };
    size_t tile = bounds.wanted > 0 ? of_a_part((bounds.wanted + line - 1) / line * line) : 0;
    // Ranks differ in what they do, but not in what the headers of their schedules say: their tiles are equal.
    const size_t most = largest_tile_bytes(schedule, bounds.slot_bytes);
    if (!schedule.board.empty()) {
        if (tile == 0)
            tile =
                of_a_part(board_tile_bytes(parts * bytes, schedule.ranks, board_of_all(schedule), bounds.board_bytes));
        return std::min({tile, of_a_part(bounds.board_bytes), most});
    }
    if (schedule.fifo_depth > 0) return tile == 0 ? most : std::min(tile, most);
    return bytes;
}

}  // namespace weft
