#include "src/schedule/tiles.hpp"

#include <algorithm>

namespace weft::internal {

namespace {

constexpr size_t line = 64;

constexpr size_t small_tile_bytes = 128 << 10;
// Messages whose results do not stay in the last-level cache, for any number of ranks.
constexpr size_t long_bytes = 8 << 20;

// The tile of an algorithm with a flag block. Measured in perf/results.
// * The data that a rank reads and writes of a tile should stay in its second-level cache.
// * Two waits a tile should cost little: 64 KiB for each rank to reduce.
// * Messages limited by memory use more, because a wait costs more there than a cache miss.
// * On one host, a small number of ranks uses larger tiles, as long as the slots of all fit the caches.
// * Many ranks use less, to leave the last-level cache to the buffers. With non-temporal stores they use twice as much.
// * If all ranks contribute and receive, and the message is not long, a tile is as large as that cache allows.
// * The data of one rank travel in several tiles: others read one tile while the rank writes the next.
// * If a host has some of the ranks, all ranks count, because traffic between hosts is split into as many more pieces.
size_t shared_tile_bytes(const Schedule& schedule, size_t bytes, const TileBounds& bounds) {
    const size_t each = size_t(schedule.ranks);
    const size_t least = bytes < long_bytes ? small_tile_bytes : bytes < 32 << 20 ? 256 << 10 : 512 << 10;
    size_t wanted = (bytes < 32 << 20 ? 64 << 10 : 128 << 10) * each;
    if (shared_by_all(schedule)) {
        // The most bytes that so many slots of all ranks allow, but at least a tile.
        const auto slots_hold = [&](size_t slots, size_t all) { return all / (slots * each) / line * line; };
        if (bytes < long_bytes && bounds.two_slots && reads_in_order(schedule) &&
            !facts_of(schedule.collective).rooted) {
            wanted = slots_hold(2, bytes <= 1 << 20 ? 16 << 20 : 8 << 20);
        } else {
            wanted = std::min(wanted, slots_hold(default_slots, bytes < 4 << 20 ? 8 << 20 : 16 << 20));
            wanted = std::max(wanted, slots_hold(default_slots, 4 << 20));
        }
    }
    return std::min(std::max(wanted, least), bounds.shared_slot_bytes);
}

}  // namespace

bool pays_pipelined(const Schedule& schedule, size_t bytes, size_t tile_bytes) {
    return is_two_shot(schedule) && tiles_of(bytes, tile_bytes) >= 4 &&
           (bytes >= long_bytes || tile_bytes <= small_tile_bytes);
}

bool reads_in_order(const Schedule& schedule) {
    return shared_by_all(schedule) && schedule.fifo_depth == 0 && schedule.tiles == 1;
}

size_t slot_bytes_of(size_t slot_bytes, int fifo_depth) {
    constexpr size_t default_depth = default_slots, least = 1 << 10;
    const size_t slots = std::max(default_depth, size_t(fifo_depth));
    return slots == default_depth ? slot_bytes : std::max(least, slot_bytes * default_depth / slots / line * line);
}

size_t tile_bytes_of(const Schedule& schedule, size_t bytes, const TileBounds& bounds) {
    const size_t parts = size_t(schedule.parts());
    const auto of_a_part = [&](size_t tile) { return std::max(line, tile / parts / line * line); };
    size_t tile = bounds.wanted > 0 ? of_a_part((bounds.wanted + line - 1) / line * line) : 0;
    // Ranks have different instructions but equal headers, so their tiles are equal.
    const size_t most = largest_tile_bytes(schedule, bounds.slot_bytes);
    if (!schedule.shared_ranks.empty()) {
        if (tile == 0) tile = of_a_part(shared_tile_bytes(schedule, parts * bytes, bounds));
        return std::min({tile, of_a_part(bounds.shared_slot_bytes / size_t(schedule.wide)), most});
    }
    if (schedule.fifo_depth > 0) return tile == 0 ? most : std::min(tile, most);
    return bytes;
}

}  // namespace weft::internal
