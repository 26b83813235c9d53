// flag_block_test.cpp: the flag block as plain memory: lines that all see, slots that do not touch each other, and
// growth of one rank's slots alone.
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "src/segment/flag_block.hpp"
#include "tests/catch.hpp"
#include "tests/error.hpp"

namespace weft::internal::test {
namespace {

struct FlagBlocks {
    std::shared_ptr<Segment> group;
    std::vector<std::unique_ptr<FlagBlock>> ranks;

    explicit FlagBlocks(int count) {
        auto made = Segment::create(count);
        REQUIRE(made.ok());
        group = *made;
        for (int rank = 0; rank < count; ++rank) {
            auto flag_block = FlagBlock::open(*group, rank);
            REQUIRE(flag_block.ok());
            ranks.push_back(std::move(*flag_block));
        }
    }
};

}  // namespace

TEST_CASE("a flag block's lines are its ranks' own, fresh, on cache lines, and all ranks see them", "[flag_block]") {
    FlagBlocks flag_blocks(5);
    std::set<const void*> places;
    for (int rank = 0; rank < 5; ++rank)
        for (uint32_t tile = 0; tile < flag_slots; ++tile) {
            FlagLine& line = flag_blocks.ranks[size_t(rank)]->line(rank, tile);
            CHECK(reinterpret_cast<uintptr_t>(&line) % line_bytes == 0);
            CHECK(line.arrival.load() == 0);
            CHECK(line.departure.load() == 0);
            CHECK(places.insert(&line).second);
            line.arrival.store(flag_word(tile, uint32_t(rank)));
            for (const auto& other : flag_blocks.ranks)
                CHECK(other->line(rank, tile).arrival.load() == flag_word(tile, uint32_t(rank)));
        }
    CHECK(&flag_blocks.ranks[0]->line(3, 1) ==
          &flag_blocks.ranks[0]->line(3, 1 + flag_slots));  // lines return after flag_slots tiles
}

TEST_CASE("the arrival flag distinguishes tiles and calls, and none equals a fresh flag", "[flag_block]") {
    CHECK(flag_word(0, 0) != 0);
    CHECK(flag_word(0, 5) != flag_word(0, 6));
    CHECK(flag_word(0, 5) != flag_word(4, 5));
    CHECK(flag_word(~uint32_t(0), 7) >> 32 == 0);  // the counter may wrap; the word is then told by its fingerprint
}

TEST_CASE("slots of the largest size do not touch each other", "[flag_block]") {
    FlagBlocks flag_blocks(3);
    for (int rank = 0; rank < 3; ++rank) {
        FlagBlock& flag_block = *flag_blocks.ranks[size_t(rank)];
        REQUIRE(flag_block.reserve(FlagBlock::slot_bytes_max).ok());
        CHECK(flag_block.reserved() == flag_slots * FlagBlock::slot_bytes_max);
        for (uint32_t tile = 0; tile < flag_slots; ++tile) {
            CHECK(reinterpret_cast<uintptr_t>(flag_block.slot(rank, tile)) % 64 == 0);
            memset(flag_block.slot(rank, tile), int(rank * flag_slots + int(tile) + 1), FlagBlock::slot_bytes_max);
        }
    }
    const std::vector<std::byte> zeros(FlagBlock::slot_bytes_max);
    for (int rank = 0; rank < 3; ++rank)
        for (uint32_t tile = 0; tile < flag_slots; ++tile) {
            const std::byte* slot = flag_blocks.ranks[0]->slot(rank, tile);
            const std::vector<std::byte> expected(FlagBlock::slot_bytes_max,
                                                  std::byte(rank * flag_slots + int(tile) + 1));
            CHECK(memcmp(slot, expected.data(), expected.size()) == 0);
        }
    // Nor do they touch what lies behind the flag block in the heap.
    CHECK(memcmp(flag_blocks.group->heaps().at(0) + FlagBlock::heap_bytes, zeros.data(), 4096) == 0);
}

TEST_CASE("growing keeps the slots' data and grows no other rank's slots", "[flag_block]") {
    FlagBlocks flag_blocks(2);
    FlagBlock& flag_block = *flag_blocks.ranks[0];
    CHECK(flag_block.reserved() == flag_slots * FlagBlock::slot_bytes_first);
    memset(flag_block.slot(0, 2), 0x5a, FlagBlock::slot_bytes_first);
    for (const size_t bytes :
         {size_t(1), FlagBlock::slot_bytes_first, size_t(100'000), size_t(50'000), FlagBlock::slot_bytes_max}) {
        const size_t before = flag_block.reserved();
        REQUIRE(flag_block.reserve(bytes).ok());
        CHECK(flag_block.reserved() == std::max(before, flag_slots * bytes));
        CHECK(flag_blocks.ranks[1]->reserved() == flag_slots * FlagBlock::slot_bytes_first);
        const std::vector<std::byte> expected(FlagBlock::slot_bytes_first, std::byte{0x5a});
        CHECK(memcmp(flag_blocks.ranks[1]->slot(0, 2), expected.data(), expected.size()) == 0);
    }
    CHECK(flag_block.slot(0, 2)[FlagBlock::slot_bytes_max - 1] == std::byte{0});  // fresh memory is zero
}

TEST_CASE("data go round in their slot, one behind the other, and stay in it", "[flag_block]") {
    FlagBlocks flag_blocks(2);
    const FlagBlock& flag_block = *flag_blocks.ranks[0];
    const FlagBlock::Rotation rotation{7, 4096}, none, in_two{0, 1 << 20, 2};
    CHECK(rotation.bytes() == 8 * 4096);
    for (uint32_t tile = 0; tile < 100; ++tile) {
        const size_t begin = size_t(flag_block.slot(1, tile, rotation) - flag_block.slot(1, tile));
        CHECK(begin == tile / flag_slots % 8 * 4096);
        CHECK(flag_block.slot(1, tile, none) == flag_block.slot(1, tile));
        CHECK(flag_block.slot(1, tile, in_two) == flag_block.slot(1, tile % 2));
    }
    // The counter of tiles may wrap.
    CHECK(flag_block.slot(1, ~uint32_t(0), rotation) - flag_block.slot(1, 3) == 7 * 4096);
    for (int ranks = 1; ranks <= 256; ++ranks)
        for (size_t bytes = 64; bytes <= FlagBlock::slot_bytes_max; bytes += bytes < 10'000 ? 64 : 4096 + 64) {
            const FlagBlock::Rotation of = FlagBlock::rotation(bytes, ranks, false),
                                      in_order = FlagBlock::rotation(bytes, ranks, true);
            const bool fits =
                of.slots == flag_slots && in_order.slots == (of.mask > 0 ? flag_slots : 2) &&
                in_order.mask == of.mask && in_order.pitch == of.pitch && of.pitch == bytes &&
                (of.mask & (of.mask + 1)) == 0 && of.bytes() <= FlagBlock::slot_bytes_max &&
                of.bytes() <= std::max({bytes, FlagBlock::slot_bytes_first, (size_t(1) << 20) / size_t(ranks)});
            if (!fits) FAIL_CHECK(bytes << " bytes of " << ranks << " ranks");
        }
    CHECK(FlagBlock::rotation(4096, 2, true).bytes() == 512 << 10);
    CHECK(FlagBlock::rotation(0, 2, true).bytes() == 0);
}

TEST_CASE("slots that a rank has not grown take no memory", "[flag_block]") {
    FlagBlocks flag_blocks(2);
    const auto resident = [&](const std::byte* address) {
        unsigned char in_memory = 0;
        const auto page = reinterpret_cast<uintptr_t>(address) / page_bytes() * page_bytes();
        REQUIRE(mincore(reinterpret_cast<void*>(page), page_bytes(), &in_memory) == 0);
        return (in_memory & 1) != 0;
    };
    const std::byte* end = flag_blocks.ranks[0]->slot(0, 1) + FlagBlock::slot_bytes_max / 2;
    CHECK(resident(flag_blocks.ranks[0]->slot(0, 1)));
    CHECK(!resident(end));
    REQUIRE(flag_blocks.ranks[0]->reserve(FlagBlock::slot_bytes_max).ok());
    CHECK(resident(end));
    CHECK(!resident(flag_blocks.ranks[1]->slot(1, 1) + FlagBlock::slot_bytes_max / 2));
}

TEST_CASE("a slot beyond the largest is refused with both sizes, and changes nothing", "[flag_block]") {
    FlagBlocks flag_blocks(1);
    const Status status = flag_blocks.ranks[0]->reserve(FlagBlock::slot_bytes_max + 1);
    CHECK_ERROR(status, "internal.state");
    CHECK_THAT(status.sentence(), Catch::Contains(std::to_string(FlagBlock::slot_bytes_max + 1)) &&
                                      Catch::Contains(std::to_string(FlagBlock::slot_bytes_max)));
    CHECK(flag_blocks.ranks[0]->reserved() == flag_slots * FlagBlock::slot_bytes_first);
    CHECK(flag_blocks.ranks[0]->reserve(FlagBlock::slot_bytes_max).ok());
}

}  // namespace weft::internal::test
