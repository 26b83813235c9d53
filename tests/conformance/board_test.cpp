// board_test.cpp: the board as plain memory: lines that all see, slots that do not touch each other, growth that is
// nobody else's business.
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "src/segment/board.hpp"
#include "tests/catch.hpp"

namespace weft::internal::test {
namespace {

struct Boards {
    std::shared_ptr<HostGroup> group;
    std::vector<std::unique_ptr<Board>> ranks;

    explicit Boards(int count) {
        auto made = HostGroup::create(count);
        REQUIRE(made.ok());
        group = *made;
        for (int rank = 0; rank < count; ++rank) {
            auto board = Board::open(*group, rank);
            REQUIRE(board.ok());
            ranks.push_back(std::move(*board));
        }
    }
};

}  // namespace

TEST_CASE("a board's lines are its ranks' own, fresh, on cache lines, and all ranks see them", "[board]") {
    Boards boards(5);
    std::set<const void*> places;
    for (int rank = 0; rank < 5; ++rank)
        for (uint32_t tile = 0; tile < board_slots; ++tile) {
            BoardLine& line = boards.ranks[size_t(rank)]->line(rank, tile);
            CHECK(reinterpret_cast<uintptr_t>(&line) % line_bytes == 0);
            CHECK(line.entry.load() == 0);
            CHECK(line.done.load() == 0);
            CHECK(places.insert(&line).second);
            line.entry.store(entry_word(tile, uint32_t(rank)));
            for (const auto& other : boards.ranks)
                CHECK(other->line(rank, tile).entry.load() == entry_word(tile, uint32_t(rank)));
        }
    CHECK(&boards.ranks[0]->line(3, 1) ==
          &boards.ranks[0]->line(3, 1 + board_slots));  // lines return after board_slots tiles
}

TEST_CASE("the entry word tells tiles and calls apart, and none is the word of a fresh board", "[board]") {
    CHECK(entry_word(0, 0) != 0);
    CHECK(entry_word(0, 5) != entry_word(0, 6));
    CHECK(entry_word(0, 5) != entry_word(4, 5));
    CHECK(entry_word(~uint32_t(0), 7) >> 32 == 0);  // the counter may wrap; the word is then told by its fingerprint
}

TEST_CASE("slots of the largest size do not touch each other", "[board]") {
    Boards boards(3);
    for (int rank = 0; rank < 3; ++rank) {
        Board& board = *boards.ranks[size_t(rank)];
        REQUIRE(board.reserve(Board::slot_bytes_max).ok());
        CHECK(board.reserved() == board_slots * Board::slot_bytes_max);
        for (uint32_t tile = 0; tile < board_slots; ++tile) {
            CHECK(reinterpret_cast<uintptr_t>(board.slot(rank, tile)) % 64 == 0);
            memset(board.slot(rank, tile), int(rank * board_slots + int(tile) + 1), Board::slot_bytes_max);
        }
    }
    const std::vector<std::byte> zeros(Board::slot_bytes_max);
    for (int rank = 0; rank < 3; ++rank)
        for (uint32_t tile = 0; tile < board_slots; ++tile) {
            const std::byte* slot = boards.ranks[0]->slot(rank, tile);
            const std::vector<std::byte> expected(Board::slot_bytes_max, std::byte(rank * board_slots + int(tile) + 1));
            CHECK(memcmp(slot, expected.data(), expected.size()) == 0);
        }
    // Nor do they touch what lies behind the board in the heap.
    CHECK(memcmp(boards.group->heap(0) + Board::heap_bytes, zeros.data(), 4096) == 0);
}

TEST_CASE("growing keeps what the slots hold and grows nobody else's", "[board]") {
    Boards boards(2);
    Board& board = *boards.ranks[0];
    CHECK(board.reserved() == board_slots * Board::slot_bytes_first);
    memset(board.slot(0, 2), 0x5a, Board::slot_bytes_first);
    for (const size_t bytes :
         {size_t(1), Board::slot_bytes_first, size_t(100'000), size_t(50'000), Board::slot_bytes_max}) {
        const size_t before = board.reserved();
        REQUIRE(board.reserve(bytes).ok());
        CHECK(board.reserved() == std::max(before, board_slots * bytes));
        CHECK(boards.ranks[1]->reserved() == board_slots * Board::slot_bytes_first);
        const std::vector<std::byte> expected(Board::slot_bytes_first, std::byte{0x5a});
        CHECK(memcmp(boards.ranks[1]->slot(0, 2), expected.data(), expected.size()) == 0);
    }
    CHECK(board.slot(0, 2)[Board::slot_bytes_max - 1] == std::byte{0});  // fresh memory is zero
}

TEST_CASE("data go round in their slot, one behind the other, and stay in it", "[board]") {
    Boards boards(2);
    const Board& board = *boards.ranks[0];
    const Board::Rotation rotation{7, 4096}, none, in_two{0, 1 << 20, 2};
    CHECK(rotation.bytes() == 8 * 4096);
    for (uint32_t tile = 0; tile < 100; ++tile) {
        const size_t begin = size_t(board.slot(1, tile, rotation) - board.slot(1, tile));
        CHECK(begin == tile / board_slots % 8 * 4096);
        CHECK(board.slot(1, tile, none) == board.slot(1, tile));
        CHECK(board.slot(1, tile, in_two) == board.slot(1, tile % 2));
    }
    // The counter of tiles may wrap.
    CHECK(board.slot(1, ~uint32_t(0), rotation) - board.slot(1, 3) == 7 * 4096);
    for (int ranks = 1; ranks <= 256; ++ranks)
        for (size_t bytes = 64; bytes <= Board::slot_bytes_max; bytes += bytes < 10'000 ? 64 : 4096 + 64) {
            const Board::Rotation of = Board::rotation(bytes, ranks, false),
                                  in_order = Board::rotation(bytes, ranks, true);
            const bool fits =
                of.slots == board_slots && in_order.slots == (of.mask > 0 ? board_slots : 2) &&
                in_order.mask == of.mask && in_order.pitch == of.pitch && of.pitch == bytes &&
                (of.mask & (of.mask + 1)) == 0 && of.bytes() <= Board::slot_bytes_max &&
                of.bytes() <= std::max({bytes, Board::slot_bytes_first, (size_t(1) << 20) / size_t(ranks)});
            if (!fits) FAIL_CHECK(bytes << " bytes of " << ranks << " ranks");
        }
    CHECK(Board::rotation(4096, 2, true).bytes() == 512 << 10);
    CHECK(Board::rotation(0, 2, true).bytes() == 0);
}

TEST_CASE("what a rank has not grown takes no memory", "[board]") {
    Boards boards(2);
    const auto resident = [&](const std::byte* address) {
        unsigned char in_memory = 0;
        const auto page = reinterpret_cast<uintptr_t>(address) / page_bytes() * page_bytes();
        REQUIRE(mincore(reinterpret_cast<void*>(page), page_bytes(), &in_memory) == 0);
        return (in_memory & 1) != 0;
    };
    const std::byte* end = boards.ranks[0]->slot(0, 1) + Board::slot_bytes_max / 2;
    CHECK(resident(boards.ranks[0]->slot(0, 1)));
    CHECK(!resident(end));
    REQUIRE(boards.ranks[0]->reserve(Board::slot_bytes_max).ok());
    CHECK(resident(end));
    CHECK(!resident(boards.ranks[1]->slot(1, 1) + Board::slot_bytes_max / 2));
}

TEST_CASE("a slot beyond the largest is refused with both sizes, and changes nothing", "[board]") {
    Boards boards(1);
    const Status status = boards.ranks[0]->reserve(Board::slot_bytes_max + 1);
    CHECK(status.code() == weftInternalError);
    CHECK_THAT(status.sentence(), Catch::Contains(std::to_string(Board::slot_bytes_max + 1)) &&
                                      Catch::Contains(std::to_string(Board::slot_bytes_max)));
    CHECK(boards.ranks[0]->reserved() == board_slots * Board::slot_bytes_first);
    CHECK(boards.ranks[0]->reserve(Board::slot_bytes_max).ok());
}

}  // namespace weft::internal::test
