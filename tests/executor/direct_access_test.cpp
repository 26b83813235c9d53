// direct_access_test.cpp: buffers that peers read and write in place: all of them (direct), some (mixed), or none.
// Ranks are threads, or processes that map each other's arenas and agree in a round.
#include <fstream>

#include "tests/executor/wild_inputs.hpp"

namespace weft::internal::test {
namespace {

Call shot(const char* algorithm, const WildInputs& wild, int n, weftDataType_t type, int op, size_t count,
          std::mt19937& random) {
    Call call;
    call.algorithm = registry::find_algorithm(algorithm);
    call.type = type;
    call.op = op;
    call.tile_bytes = 64 + 64 * (random() % 8);
    call.exports_buffers = true;
    wild.fill(call, n, count, random);
    call.pipelined = algorithm == std::string("two_shot") && call.tiles() >= 4 && random() % 4 != 0;
    call.in_place = random() % 2 ? random_flags(n, random) : std::vector<bool>();
    call.send_offset = random() % 2 ? 0 : random() % 64;
    call.receive_offset = random() % 2 ? 0 : random() % 64;
    return call;
}

const char* either(std::mt19937& random) { return random() % 2 ? "one_shot" : "two_shot"; }

constexpr size_t counts[] = {0, 1, 2, 17, 63, 64, 65, 1000, 3001};

}  // namespace

TEST_CASE("ranks of one process work on each other's buffers directly, with the interpreter's bits", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    for (const int n : {2, 3, 4, 5, 8}) {
        LocalRanks ranks(n);
        for (int type = 0; type < weftNumTypes; ++type)
            for (const int op : reductions_of(type))
                for (const size_t count : counts) {
                    if (random() % (small() ? 32 : 2) != 0) continue;
                    const Call call = shot(either(random), wild, n, weftDataType_t(type), op, count, random);
                    REQUIRE(ranks.mode(call).direct(n) == (op != premul));
                    if (const auto wrong = difference(call, ranks.run(call, random), expected(call, ranks.mode(call))))
                        FAIL_CHECK(*wrong);
                }
    }
}

TEST_CASE("processes read those buffers in place that lie in arenas, with the interpreter's bits", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    int direct = 0, mixed = 0, staged = 0;
    for (const int n : {2, 3, 4, 5, 8}) {
        LocalRanks ranks(n, Reached::processes);
        for (int round = 0; round < (small() ? 20 : 300); ++round) {
            const auto type = weftDataType_t(random() % weftNumTypes);
            Call call = shot(either(random), wild, n, type, random_reduction(type, random),
                             counts[random() % std::size(counts)], random);
            call.from_arena = round % 3 == 0 ? std::vector<bool>(size_t(n), true) : random_flags(n, random);
            const DirectMode mode = ranks.mode(call);
            (mode.direct(n) ? direct : mode.readable.empty() ? staged : mixed) += 1;
            if (const auto wrong = difference(call, ranks.run(call, random), expected(call, mode))) FAIL_CHECK(*wrong);
        }
        CHECK(ranks.direct_access_state(n - 1) == DirectAccess::State::ready);
    }
    CHECK(direct > 0);
    CHECK(mixed > 0);
    CHECK(staged > 0);
}

TEST_CASE("processes agree in the first operation that offers, and no sooner", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    const char* const algorithm = GENERATE("one_shot", "two_shot");
    LocalRanks ranks(3, Reached::processes);
    Call call = shot(algorithm, wild, 3, weftFloat32, weftSum, 1000, random);
    const auto run = [&] {
        const DirectMode mode = ranks.mode(call);
        if (const auto wrong = difference(call, ranks.run(call, random), expected(call, mode))) FAIL_CHECK(*wrong);
    };
    run();  // nobody has a buffer to export
    CHECK(ranks.direct_access_state(0) == DirectAccess::State::unknown);
    call.from_arena = {false, true, false};
    run();
    for (int rank = 0; rank < 3; ++rank) CHECK(ranks.direct_access_state(rank) == DirectAccess::State::ready);
    run();
}

TEST_CASE("a process maps the arena of another once, however many of its ranks and communicators use it",
          "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    Call call = shot(either(random), wild, 3, weftFloat32, weftSum, 1000, random);
    call.from_arena = {true, true, true};
    const auto maps = [] {
        std::ifstream file("/proc/self/maps");
        int count = 0;
        for (std::string line; std::getline(file, line);) count += line.find("weft-arena") != std::string::npos;
        return count;
    };
    const auto run = [&](LocalRanks& ranks) {
        const DirectMode mode = ranks.mode(call);
        if (const auto wrong = difference(call, ranks.run(call, random), expected(call, mode))) FAIL_CHECK(*wrong);
        if (const auto wrong = difference(call, ranks.run(call, random), expected(call, ranks.mode(call))))
            FAIL_CHECK(*wrong);
        REQUIRE(ranks.direct_access_state(0) == DirectAccess::State::ready);
    };
    const int before = maps();
    {
        LocalRanks first(3, Reached::processes);
        run(first);
        const int once = maps();
        CHECK(once > before);
        LocalRanks second(3, Reached::processes);
        run(second);
        CHECK(maps() == once);
    }
    CHECK(maps() <= std::max(before, 1));  // and unmaps it with the last of them
}

TEST_CASE("where the kernel copies between processes, private buffers end in the interpreter's bits", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    for (const int n : {2, 3, 5}) {
        LocalRanks ranks(n, Reached::processes);
        for (int round = 0; round < (small() ? 20 : 200); ++round) {
            const auto type = weftDataType_t(random() % weftNumTypes);
            Call call = shot(either(random), wild, n, type, random_reduction(type, random),
                             counts[random() % std::size(counts)], random);
            call.cma = round % 4 != 3;
            if (random() % 4 == 0) call.from_arena = random_flags(n, random);
            const DirectMode mode = ranks.mode(call);
            if (const auto wrong = difference(call, ranks.run(call, random), expected(call, mode))) FAIL_CHECK(*wrong);
            for (int rank = 0; rank < n; ++rank) REQUIRE(ranks.cma_state(rank) != Cma::State::unknown);
        }
        // Where a sandbox forbids it all ranks know, and the messages were staged.
        for (int rank = 1; rank < n; ++rank) CHECK(ranks.cma_state(rank) == ranks.cma_state(0));
    }
}

TEST_CASE("one process that the kernel does not let us read means that all messages are staged, on every rank",
          "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    LocalRanks ranks(3, Reached::processes);
    ranks.segment().row(1).token_address = 8;  // nothing is mapped there
    for (int round = 0; round < 3; ++round) {
        Call call = shot(either(random), wild, 3, weftFloat32, weftSum, 1000, random);
        call.cma = true;
        if (const auto wrong = difference(call, ranks.run(call, random), expected(call))) FAIL_CHECK(*wrong);
        for (int rank = 0; rank < 3; ++rank) CHECK(ranks.cma_state(rank) == Cma::State::refused);
    }
}

TEST_CASE("one arena that cannot be mapped means that all messages are staged, on every rank", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    LocalRanks ranks(3, Reached::processes);
    ranks.segment().row(2).arena_inode += 1;  // the descriptor has come to mean another file
    for (int round = 0; round < 3; ++round) {
        Call call = shot(either(random), wild, 3, weftFloat32, weftSum, 1000, random);
        call.from_arena = {true, true, true};
        if (const auto wrong = difference(call, ranks.run(call, random), expected(call, ranks.mode(call))))
            FAIL_CHECK(*wrong);
        for (int rank = 0; rank < 3; ++rank) CHECK(ranks.direct_access_state(rank) == DirectAccess::State::refused);
    }
}

TEST_CASE("where buffers may not be reached, everything is staged", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    LocalRanks ranks(4, Reached::threads, false);
    const Call call = shot(either(random), wild, 4, weftFloat64, weftMax, 1000, random);
    CHECK(ranks.direct_access_state(0) == DirectAccess::State::refused);
    CHECK(ranks.mode(call).readable.empty());
    if (const auto wrong = difference(call, ranks.run(call, random), expected(call))) FAIL_CHECK(*wrong);
}

}  // namespace weft::internal::test
