// arena_test.cpp: memory of weftHostAlloc: places that do not overlap, holes that close again, misuse that is refused.
#include "src/segment/arena.hpp"

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/error.hpp"

namespace weft::internal::test {
namespace {

constexpr size_t arena_pages = 64;

SharedMemory segment() {
    auto memory = SharedMemory::create("weft-test", arena_pages * page_bytes());
    REQUIRE(memory.ok());
    return std::move(*memory);
}

std::byte* allocate(Arena& arena, size_t bytes) {
    auto memory = arena.allocate(bytes);
    REQUIRE(memory.ok());
    return static_cast<std::byte*>(*memory);
}

// Nothing is given out: the whole arena can be had at once.
bool is_whole(Arena& arena) {
    auto all = arena.allocate(arena_pages * page_bytes());
    return all.ok() && arena.free(*all).ok();
}

}  // namespace

TEST_CASE("allocations are page aligned, zero, apart, and inside the arena", "[arena]") {
    Arena arena(segment());
    std::vector<std::byte*> places;
    for (const size_t bytes : {size_t(0), size_t(1), page_bytes(), page_bytes() + 1, 5 * page_bytes()}) {
        std::byte* place = allocate(arena, bytes);
        CHECK(reinterpret_cast<uintptr_t>(place) % page_bytes() == 0);
        CHECK(arena.contains(place, bytes));
        for (size_t i = 0; i < bytes; ++i)
            if (place[i] != std::byte{0}) FAIL("byte " << i << " is not zero");
        memset(place, 0xff, bytes);
        places.push_back(place);
    }
    for (std::byte* place : places) CHECK(arena.free(place).ok());
    CHECK(is_whole(arena));
    CHECK(allocate(arena, page_bytes())[0] == std::byte{0});  // zero again
}

TEST_CASE("holes join their neighbours in any order of frees", "[arena]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    Arena arena(segment());
    for (int round = 0; round < 100; ++round) {
        std::vector<std::byte*> places;
        for (;;) {
            auto place = arena.allocate((1 + random() % 6) * page_bytes());
            if (!place.ok()) break;
            places.push_back(static_cast<std::byte*>(*place));
        }
        CHECK(!is_whole(arena));
        std::shuffle(places.begin(), places.end(), random);
        for (std::byte* place : places) REQUIRE(arena.free(place).ok());
        REQUIRE(is_whole(arena));
    }
}

TEST_CASE("a full arena says how much was asked for, and serves again after a free", "[arena]") {
    Arena arena(segment());
    std::byte* most = allocate(arena, (arena_pages - 1) * page_bytes());
    const auto refused = arena.allocate(2 * page_bytes());
    REQUIRE(!refused.ok());
    CHECK_ERROR(refused, "memory.arena");
    CHECK_THAT(refused.status().sentence(), Catch::Contains(std::to_string(2 * page_bytes())));
    allocate(arena, page_bytes());
    CHECK(!arena.allocate(1).ok());
    REQUIRE(arena.free(most).ok());
    CHECK(arena.allocate(2 * page_bytes()).ok());
}

TEST_CASE("an arena that is mapped in pieces grows as memory is asked for, up to all of it", "[arena]") {
    auto first_piece = SharedMemory::create("weft-test", arena_pages * page_bytes(), 2 * page_bytes());
    REQUIRE(first_piece.ok());
    Arena arena(std::move(*first_piece));
    CHECK(arena.base() == nullptr);
    // Pieces of 2, 2, 4, 30 and 26 pages.
    std::vector<std::pair<std::byte*, size_t>> places;
    for (const size_t pages : {2u, 1u, 3u, 30u, 1u, 1u, 20u, 6u}) {
        std::byte* place = allocate(arena, pages * page_bytes());
        CHECK(arena.contains(place, pages * page_bytes()));
        memset(place, int(places.size() + 1), pages * page_bytes());
        places.emplace_back(place, pages * page_bytes());
    }
    CHECK(arena.allocate(page_bytes()).status().code() == weftSystemError);  // 64 pages are given out
    for (size_t i = 0; i < places.size(); ++i)
        CHECK(std::all_of(places[i].first, places[i].first + places[i].second,
                          [&](std::byte byte) { return byte == std::byte(i + 1); }));
    for (const auto& [place, bytes] : places) CHECK(arena.free(place).ok());
    CHECK(arena.free(places[0].first).code() == weftInvalidArgument);
    // Freed areas are joined within their piece, not across pieces.
    std::byte* again = allocate(arena, 30 * page_bytes());
    CHECK(again[0] == std::byte{0});
    CHECK(allocate(arena, 26 * page_bytes())[0] == std::byte{0});
    CHECK(arena.allocate(5 * page_bytes()).status().code() == weftSystemError);
    CHECK(arena.allocate(4 * page_bytes()).ok());
}

TEST_CASE("sizes beyond the arena are refused, however large", "[arena]") {
    Arena arena(segment());
    for (const size_t bytes : {arena_pages * page_bytes() + 1, size_t(1) << 63, ~size_t(0)})
        CHECK(arena.allocate(bytes).status().code() == weftSystemError);
    CHECK(is_whole(arena));
}

TEST_CASE("only allocated blocks can be freed, and only once", "[arena]") {
    Arena arena(segment());
    std::byte* place = allocate(arena, 3 * page_bytes());
    int elsewhere = 0;
    for (void* wrong :
         {static_cast<void*>(&elsewhere), static_cast<void*>(place + 1), static_cast<void*>(place + page_bytes())}) {
        const Status status = arena.free(wrong);
        CHECK_ERROR(status, "memory.not-allocated");
    }
    CHECK(arena.free(place).ok());
    CHECK_ERROR(arena.free(place), "memory.not-allocated");
    CHECK(is_whole(arena));
}

TEST_CASE("threads may allocate and free at once", "[arena]") {
    Arena arena(segment());
    std::vector<std::thread> threads;
    std::vector<int> wrong(4);
    for (size_t thread = 0; thread < wrong.size(); ++thread)
        threads.emplace_back([&, thread] {
            std::mt19937 random{unsigned(thread)};
            for (int i = 0; i < 500; ++i) {
                const size_t bytes = (1 + random() % 3) * page_bytes();
                auto place = arena.allocate(bytes);
                if (!place.ok()) continue;
                memset(*place, int(thread + 1), bytes);
                std::this_thread::yield();
                const auto* data = static_cast<const std::byte*>(*place);
                wrong[thread] +=
                    std::any_of(data, data + bytes, [&](std::byte byte) { return byte != std::byte(thread + 1); });
                wrong[thread] += !arena.free(*place).ok();
            }
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == std::vector<int>(4, 0));
    CHECK(is_whole(arena));
}

TEST_CASE("a process has one arena", "[arena]") {
    auto first = Arena::get();
    auto second = Arena::get();
    REQUIRE(first.ok());
    REQUIRE(second.ok());
    CHECK(*first == *second);
    CHECK(Arena::existing() == *first);
}

}  // namespace weft::internal::test
