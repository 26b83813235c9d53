// tiles_test.cpp: how large the tiles are that go over a board.
#include "src/schedule/tiles.hpp"
#include "src/registry.hpp"
#include "tests/catch.hpp"
#include "transports/transport.hpp"

using namespace weft;

TEST_CASE("tiles on one host leave room in its caches, between hosts they are not cut for that", "[tiles]") {
    const TileBounds bounds{.slot_bytes = size_t(1) << 30, .board_bytes = Board::slot_bytes_max};
    const auto tile = [&](const char* algorithm, int ranks, int hosts, size_t bytes) {
        const Layout layout = layout_in_blocks(ranks, hosts);
        const size_t first = tile_bytes_of(registry::find_algorithm(algorithm)->build(layout, {}), bytes, bounds);
        // Headers alone decide, which ranks have alike.
        Layout last = layout;
        last.rank = ranks - 1;
        CHECK(tile_bytes_of(registry::find_algorithm(algorithm)->build(last, {}), bytes, bounds) == first);
        return first;
    };
    constexpr size_t kib = 1 << 10, mib = 1 << 20;
    CHECK(tile("two_shot", 2, 1, mib) == 512 * kib);
    CHECK(tile("two_shot", 4, 1, mib) == 256 * kib);
    CHECK(tile("two_shot", 4, 1, 64 * mib) == 512 * kib);
    for (const int ranks : {8, 16, 32, 64}) {
        INFO(ranks << " ranks");
        // The slots of all ranks, four each, or a tile below which waits would count.
        CHECK(tile("two_shot", ranks, 1, mib) == std::max(128 * kib, 8 * mib / size_t(4 * ranks)));
        CHECK(tile("two_shot", ranks, 1, 64 * mib) == 512 * kib);
    }
    for (const char* algorithm : {"two_level_ring", "two_level_doubling"})
        CHECK(tile(algorithm, 32, 4, 16 * mib) == mib);
}
