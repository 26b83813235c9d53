// tiles_test.cpp: the size of tiles in a flag block.
#include "src/schedule/tiles.hpp"
#include "src/registry.hpp"
#include "src/segment/flag_block.hpp"
#include "tests/catch.hpp"

using namespace weft::internal;

TEST_CASE("tiles on one host leave room in its caches, between hosts they are not cut for that", "[tiles]") {
    const TileBounds bounds{.slot_bytes = size_t(1) << 30, .shared_slot_bytes = FlagBlock::slot_bytes_max};
    const auto tile = [&](const char* name, int ranks, int hosts, size_t bytes,
                          Collective collective = Collective::all_reduce) {
        const Algorithm& algorithm = *registry::find_algorithm(name, collective);
        const Parameters parameters{.root = facts_of(collective).rooted ? 0 : -1};
        const Layout layout = layout_in_blocks(ranks, hosts);
        const size_t first = tile_bytes_of(algorithm.build(layout, parameters), bytes, bounds);
        // Only headers decide, and ranks have equal headers.
        Layout last = layout;
        last.rank = ranks - 1;
        CHECK(tile_bytes_of(algorithm.build(last, parameters), bytes, bounds) == first);
        return first;
    };
    constexpr size_t kib = 1 << 10, mib = 1 << 20;
    // Two slots of each rank, one call of up to 1 MiB; a tile below which waits would count.
    for (const int ranks : {2, 4, 8, 16, 32, 64, 256}) {
        INFO(ranks << " ranks");
        const auto in_two_slots = [&](size_t all) { return std::clamp(all / size_t(2 * ranks), 128 * kib, mib); };
        CHECK(tile("two_shot", ranks, 1, mib) == in_two_slots(16 * mib));
        CHECK(tile("two_shot", ranks, 1, 4 * mib) == in_two_slots(8 * mib));
        if (ranks > 2) CHECK(tile("two_shot", ranks, 1, 64 * mib) == 512 * kib);
    }
    // One rank's data goes in pieces.
    CHECK(tile("two_shot", 4, 1, mib, Collective::reduce) == 256 * kib);
    CHECK(tile("one_shot", 8, 1, mib, Collective::broadcast) == 256 * kib);
    for (const char* algorithm : {"two_level_ring", "two_level_doubling"})
        CHECK(tile(algorithm, 32, 4, 16 * mib) == mib);
    // A leader's slot holds a tile of the whole and all data for the 32 ranks of its host from the others: 17 times as
    // much.
    CHECK(tile("leader_all_pairs", 64, 2, mib, Collective::all_to_all) == mib / 17 / 64 / 64 * 64);
}

TEST_CASE("a schedule that reads in order is one block, and goes from tile to tile", "[tiles]") {
    int found = 0;
    for (const Algorithm& algorithm : registry::algorithms())
        for (const int ranks : {2, 3, 8, 17})
            for (const int hosts : {1, 2}) {
                Layout layout = layout_in_blocks(ranks, hosts);
                if (algorithm.refusal(layout)) continue;
                const bool rooted = facts_of(algorithm.collective).rooted;
                for (int root = rooted ? 0 : -1; root < (rooted ? ranks : 0); ++root)
                    for (layout.rank = 0; layout.rank < ranks; ++layout.rank) {
                        const Schedule schedule = algorithm.build(layout, {.root = root});
                        if (!reads_in_order(schedule)) continue;
                        ++found;
                        INFO(algorithm.name << " of " << ranks << " ranks, rank " << layout.rank << ", root " << root);
                        CHECK(schedule.blocks.size() == 1);
                        for (const Instruction& it : schedule.blocks[0].instructions) CHECK(it.tile == 0);
                    }
            }
    CHECK(found > 500);
}
