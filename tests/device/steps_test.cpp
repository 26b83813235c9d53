// steps_test.cpp: step algorithms on device memory against the interpreter of their schedules, bit for bit. They
// alternate, run in graphs, and use the environment's tiles and channels.
#include <algorithm>
#include <cstdio>
#include <set>

#include "tests/device/calls.hpp"

namespace weft::internal::test {

namespace {

constexpr const char* algorithms[] = {"ring", "recursive_doubling", "halving_doubling", "double_binary_tree",
                                      "all_pairs"};

// Every rank is a host of its own.
bool several_hosts() {
    const char* transports = getenv("WEFT_TRANSPORTS");
    return transports && std::string(transports) == "tcp";
}

// The text of weftCommExplain about a call.
struct Planned {
    std::string name;
    int blocks = 0;
    size_t tile_bytes = 0;
};
Planned planned(weftComm_t comm, const Call& call) {
    const Operation operation = call.operation();
    char text[8000];
    demand(weftCommExplain(comm, operation.count, call.type, weftRedOp_t(call.op == premul ? weftSum : call.op), text,
                           sizeof text, nullptr));
    const char* line = strstr(text, "in device memory: ");
    REQUIRE(line);
    Planned found;
    char name[64] = "";
    REQUIRE(sscanf(line, "in device memory: %63[^,], %d", name, &found.blocks) == 2);
    found.name = name;
    if (const char* tiles = strstr(line, "in tiles of ")) REQUIRE(sscanf(tiles, "in tiles of %zu", &found.tile_bytes));
    return found;
}

Call draw(int ranks, size_t count, weftDataType_t type, int op, std::mt19937& random) {
    Call call;
    call.type = type;
    call.op = op;
    for (int rank = 0; rank < ranks; ++rank) {
        call.inputs.push_back(reference::mild(type, count, random));
        if (op == premul) call.scalars.push_back(reference::mild(type, 1, random));
        call.in_place.push_back(random() % 2 == 0);
    }
    if (random() % 2) call.send_offset = random() % 4 * size_of(type);
    if (random() % 2) call.receive_offset = random() % 4 * size_of(type);
    return call;
}

// The expected plan.
std::vector<Bytes> right(Call call, const Planned& plan) {
    call.algorithm = registry::find_algorithm(plan.name == "packet_one_shot" ? "one_shot" : plan.name);
    REQUIRE(call.algorithm);
    call.channels = plan.name == "ring" ? plan.blocks : 1;
    call.tile_bytes = plan.tile_bytes > 0 ? plan.tile_bytes : std::max<size_t>(64, call.bytes());
    return expected(call);
}

void check(const Ranks& ranks, const Call& call) {
    const Planned plan = planned(ranks.comms[0], call);
    const Buffers buffers(ranks, call);
    enqueue(ranks, call, buffers);
    ranks.finish();
    ranks.check_healthy();
    Call told = call;
    told.algorithm = registry::find_algorithm("ring");
    if (const auto where = difference(told, buffers.results(), right(call, plan)))
        FAIL_CHECK(*where << ": " << plan.name);
    CHECK(buffers.spoilt(call) == -1);
}

}  // namespace

TEST_CASE("every algorithm leaves the interpreter's bits, in place and out of place", "[steps]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    for (const int n : small() ? std::vector{1, 2, 3} : std::vector{1, 2, 3, 4, 5, 8})
        for (const char* algo : algorithms) {
            INFO(algo << " on " << n << " ranks");
            const weftConfig_t config = with_algo(algo);
            const Ranks ranks(spread(n), &config);
            const Call usual = draw(n, 1000, weftFloat32, weftSum, random);
            CHECK(planned(ranks.comms[0], usual).name == algo);
            for (int type = 0; type < weftNumTypes; ++type)
                for (const size_t count : {size_t(0), size_t(1), size_t(random() % 300), 3000 + random() % 4000})
                    check(ranks, draw(n, count, weftDataType_t(type), any_reduction_of(type, random), random));
            // Several slots full.
            check(ranks, draw(n, small() ? 70'001 : 400'003, weftFloat32, weftSum, random));
        }
}

TEST_CASE("algorithms and fused kernels alternate, by the size of the message", "[steps]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    // Between hosts that are this machine one algorithm is the best for all sizes of few ranks.
    const char* const algo =
        several_hosts() ? "@-4K:halving_doubling;@4K-256K:ring;@256K-:double_binary_tree" : "^two_shot";
    for (const int n : small() ? std::vector{3} : std::vector{2, 4, 6}) {
        const weftConfig_t config = with_algo(algo);
        const Ranks ranks(spread(n), &config);
        std::set<std::string> taken;
        const auto call = [&](size_t count) {
            const Call drawn = draw(n, count, weftBfloat16, any_reduction_of(weftBfloat16, random), random);
            taken.insert(planned(ranks.comms[0], drawn).name);
            check(ranks, drawn);
        };
        // Each magnitude for sure, in any order, and all alike.
        const size_t magnitudes = small() ? 8 : 10;
        std::vector<size_t> counts = {0, 1, 10, 100};
        for (size_t magnitude = 0; magnitude < magnitudes; ++magnitude) counts.push_back(size_t(1000) << magnitude);
        while (counts.size() < (small() ? 16 : 60)) counts.push_back((random() % 1000) << random() % magnitudes);
        std::shuffle(counts.begin(), counts.end(), random);
        for (const size_t count : counts) call(count);
        CHECK(taken.count("packet_one_shot") == !several_hosts());
        CHECK(taken.size() >= 2);
    }
}

TEST_CASE("calls of all sizes are enqueued one behind the other without waiting", "[steps]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    for (const char* algo : {"ring", "double_binary_tree", "ring,one_shot"}) {
        const int n = small() ? 2 : 4;
        const weftConfig_t config = with_algo(algo);
        const Ranks ranks(spread(n), &config);
        std::vector<Call> calls;
        std::vector<std::unique_ptr<Buffers>> buffers;
        for (int call = 0; call < (small() ? 10 : 40); ++call) {
            calls.push_back(draw(n, random() % 2 ? random() % 20 : random() % 30'000, weftFloat32, weftSum, random));
            buffers.push_back(std::make_unique<Buffers>(ranks, calls.back()));
        }
        for (size_t call = 0; call < calls.size(); ++call) enqueue(ranks, calls[call], *buffers[call]);
        ranks.finish();
        ranks.check_healthy();
        for (size_t call = 0; call < calls.size(); ++call) {
            const Planned plan = planned(ranks.comms[0], calls[call]);
            calls[call].algorithm = registry::find_algorithm("ring");
            if (const auto where = difference(calls[call], buffers[call]->results(), right(calls[call], plan)))
                FAIL_CHECK("call " << call << ": " << *where << ": " << plan.name);
        }
    }
}

TEST_CASE("two communicators with connections of their own do not disturb each other", "[steps]") {
    std::mt19937 random(3);
    const weftConfig_t ring = with_algo("ring"), tree = with_algo("double_binary_tree");
    const Ranks one(spread(2), &ring), other(spread(3), &tree);
    for (int round = 0; round < 5; ++round) {
        check(one, draw(2, 1000, weftFloat32, weftSum, random));
        check(other, draw(3, 3000, weftInt32, weftMax, random));
    }
}

}  // namespace weft::internal::test
