// steps_test.cpp: the device's step machine runs schedules as the interpreter does: bit for bit, operation after
// operation over the same connections.
#include <set>

#include "src/schedule/text.hpp"
#include "tests/executor/cuda/virtual_ranks.hpp"
#include "tests/executor/wild_inputs.hpp"

namespace weft::internal::test {
namespace {

constexpr size_t slot_bytes = 4 << 10;  // of a virtual connection
const Launch launch{cuda::Body::steps};

struct Row {
    const Algorithm* algorithm;
    int channels;
    int root = -1;
};
// Algorithms whose schedules for so many ranks the device can run; those with a root for the first and the last.
std::vector<Row> rows_for(int n) {
    std::vector<Row> rows;
    for (const Algorithm& algorithm : registry::algorithms()) {
        const bool rooted = facts_of(algorithm.collective).rooted;
        if (algorithm.collective == Collective::barrier || algorithm.refusal({.ranks = n, .rank = 0})) continue;
        if (!cuda::refusal(algorithm.build({.ranks = n, .rank = 0}, {1, rooted ? 0 : -1})).empty()) continue;
        rows.push_back({&algorithm, 1, rooted ? 0 : -1});
        rows.push_back({&algorithm, 2, rooted ? n - 1 : -1});
    }
    return rows;
}
Call call_by(const Row& row) {
    Call call;
    call.algorithm = row.algorithm;
    call.channels = row.channels;
    call.root = row.root;
    return call;
}

size_t largest_tile(const Call& call) {
    size_t tile = SIZE_MAX;
    for (int rank = 0; rank < int(call.inputs.size()); ++rank)
        tile = std::min(tile, largest_tile_bytes(call.build(rank), slot_bytes));
    return tile;
}

void check(VirtualRanks& ranks, const Call& call) {
    const auto got = ranks.run(call, launch);
    if (const auto where = difference(call, got, expected(call))) FAIL_CHECK(*where << ": " << call.text());
}

}  // namespace

TEST_CASE("rings, trees, doublings and halvings run on the device's step machine", "[cuda]") {
    for (const int n : {2, 4, 8}) {
        std::set<std::string> names;
        for (const Row& row : rows_for(n)) names.insert(row.algorithm->name);
        for (const char* name : {"ring", "double_binary_tree", "halving_doubling", "recursive_doubling"}) {
            INFO(name);
            CHECK(names.count(name) == 1);
        }
        CHECK(names.count("two_shot") == 0);
    }
}

TEST_CASE("a rank that waits takes no earlier operation, with other blocks, for another one of now", "[cuda]") {
    std::mt19937 random(1);
    const WildInputs inputs(random);
    const int n = 3;
    const auto call_of = [&](const Row& row, size_t count) {
        Call call = call_by(row);
        inputs.fill(call, n, count, random);
        call.tile_bytes = 256;
        return call;
    };
    for (const Row& first : rows_for(n))
        for (const Row& second : rows_for(n))
            for (int early = 0; early < n; ++early) {
                if (random() % (!small() ? 8 : sanitized ? 128 : 32) != 0) continue;
                INFO(first.algorithm->name << ' ' << first.channels << ", then " << second.algorithm->name << ' '
                                           << second.channels << ", rank " << early << " before the others");
                VirtualRanks ranks(n);
                ranks.run(call_of(first, 100), launch);
                const Call call = call_of(second, 101);
                auto parts = ranks.prepare(call, launch);
                parts[size_t(early)]->start();
                std::this_thread::sleep_for(
                    std::chrono::milliseconds(2));  // it looks around; or it does not, and passes
                for (int rank = 0; rank < n; ++rank)
                    if (rank != early) parts[size_t(rank)]->start();
                for (auto& part : parts) part->join();
                REQUIRE(ranks.failures() == "");
                for (int rank = 0; rank < n; ++rank)
                    CHECK(parts[size_t(rank)]->result() == expected(call)[size_t(rank)]);
            }
}

TEST_CASE("the device's step machine leaves the interpreter's bits for every type, reduction and schedule", "[cuda]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs inputs(random);
    for (const int n : {2, 3, 4, 5, 8}) {
        if (skips_ranks(n, 3, random)) continue;
        VirtualRanks ranks(n);
        for (const Row& row : rows_for(n))
            for (int type = 0; type < weftNumTypes; ++type)
                for (const int op : reductions_of(type)) {
                    if (random() % (small() ? 24 : 4) != 0) continue;
                    if (op != weftSum && !facts_of(row.algorithm->collective).reduces) continue;
                    Call call = call_by(row);
                    call.type = weftDataType_t(type);
                    call.op = op;
                    inputs.fill(call, n, random() % 900, random);
                    if (!facts_of(call.collective()).transposes) call.in_place = random_flags(n, random);
                    call.tile_bytes = std::min(largest_tile(call), 64 * (1 + random() % 40));
                    call.send_offset = random() % 3 == 0 ? random() % 16 : 0;
                    call.receive_offset = random() % 3 == 0 ? random() % 16 : 0;
                    check(ranks, call);
                }
    }
}

TEST_CASE("operations of all kernels and sizes follow each other over the same words", "[cuda]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs inputs(random);
    const int n = 4;
    VirtualRanks ranks(n);
    const auto rows = rows_for(n);
    for (int i = 0; i < (small() ? 30 : 400); ++i) {
        const Row& row = rows[random() % rows.size()];
        Call call = call_by(row);
        call.type = weftInt64;
        inputs.fill(call, n, random() % 600, random);
        call.tile_bytes = std::min<size_t>(largest_tile(call), 1024);
        check(ranks, call);
        if (i % 3 != 0) continue;
        call.algorithm = registry::find_algorithm("one_shot");
        call.channels = 1;
        call.root = -1;
        inputs.fill(call, n, random() % 600, random);
        call.tile_bytes = std::max<size_t>(64, call.bytes());
        const auto got = ranks.run(call, {cuda::Body::packet_two_shot, 2});
        if (const auto where = difference(call, got, expected(call))) FAIL_CHECK(*where << ": " << call.text());
    }
}

TEST_CASE("the device's step machine refuses schedules that use the flag block", "[cuda]") {
    const auto refused = [](const char* name) {
        return cuda::refusal(registry::find_algorithm(name)->build({.ranks = 4, .rank = 1}, {}));
    };
    CHECK(refused("one_shot") == "one_shot works on a board");
    CHECK(refused("ring").empty());
}

TEST_CASE("the device's step machine runs a user's adds and cells of scratch", "[cuda]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs inputs(random);
    // Each rank sums up what comes in a cell, in another order than its peer does.
    std::vector<Schedule> written;
    for (const int rank : {0, 1}) {
        const auto schedule =
            read_text(fmt::format("schedule x all_reduce rank {} of 2 channels 1 chunks 1 fifo 2 scratch 2\n"
                                  "block channel 0 source {} target {}\n"
                                  "send input[0]\n"
                                  "recv [0] -> scratch at 1\n"
                                  "copy input[0] -> output\n"
                                  "add scratch[0 at 1] -> output{} finish\n",
                                  rank, 1 - rank, 1 - rank, rank == 0 ? "" : " left"));
        if (!schedule.ok()) FAIL(schedule.status().sentence());
        REQUIRE(cuda::refusal(*schedule) == "");
        written.push_back(*schedule);
    }
    VirtualRanks ranks(2);
    each_reduction(written, inputs, random, [&](const Call& call) { check(ranks, call); });
}

TEST_CASE("the device's step machine scales data for two places once", "[cuda]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs inputs(random);
    VirtualRanks ranks(2);
    each_reduction(two_places(), inputs, random, [&](const Call& call) { check(ranks, call); });
}

}  // namespace weft::internal::test
