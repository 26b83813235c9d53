// collectives_test.cpp: the fused bodies of collectives other than all-reduce, run by threads. They equal the
// elementary expansion of one_shot under the interpreter, bit for bit. Every type, reduction and root, at any address,
// in and out of place.
#include "tests/executor/cuda/virtual_ranks.hpp"
#include "tests/executor/wild_inputs.hpp"

namespace weft::internal::test {
namespace {

using cuda::Body;

constexpr Collective collectives[] = {Collective::broadcast,      Collective::reduce,     Collective::all_gather,
                                      Collective::reduce_scatter, Collective::all_to_all, Collective::gather,
                                      Collective::scatter};

// By packets, and by the body for long messages: peers' buffers themselves, staging memory, and as they offer them.
std::vector<Launch> launches_of(Collective collective) {
    const Body peer = facts_of(collective).parted ? Body::peer_one_shot : Body::peer_two_shot;
    return {{Body::packet_one_shot, 1},
            {Body::packet_one_shot, 3},
            {peer, 1},
            {peer, 3},
            {peer, 1, true},
            {peer, 2, true},
            {peer, 2, true, 16},
            {peer, 3, true, 2},
            {peer, 2, true, -1}};
}

void check(VirtualRanks& ranks, const Call& call, const Launch& launch) {
    // A rank does not know its peers' scalars.
    if (call.operation().op == premul && launch.body != Body::packet_one_shot && !launch.staged) return;
    Call right = call;
    right.tile_bytes = std::max<size_t>(64, call.bytes());
    if (const auto where = difference(call, ranks.run(call, launch), expected(right)))
        FAIL_CHECK(*where << ": " << text(call, launch));
}

Call draw(Collective collective, int n, int type, int op, size_t count, const WildInputs& inputs,
          std::mt19937& random) {
    Call call;
    call.algorithm = registry::find_algorithm("one_shot", collective);
    REQUIRE(call.algorithm);
    if (facts_of(collective).rooted) call.root = int(random() % unsigned(n));
    call.type = weftDataType_t(type);
    call.op = facts_of(collective).reduces ? op : weftSum;
    call.tile_bytes = 64 * (1 + random() % 20);
    inputs.fill(call, n, count, random);
    if (!facts_of(collective).transposes) call.in_place = random_flags(n, random);
    return call;
}

}  // namespace

TEST_CASE("every fused body of every collective gives the bits of its expansion", "[cuda]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs inputs(random);
    for (const int n : {1, 2, 3, 4, 5, 8}) {
        if (skips_ranks(n, 3, random)) continue;
        VirtualRanks ranks(n);
        for (const Collective collective : collectives)
            for (const Launch& launch : launches_of(collective))
                for (int type = 0; type < weftNumTypes; ++type)
                    for (const int op :
                         facts_of(collective).reduces ? reductions_of(type) : std::vector<int>{weftSum}) {
                        if (random() % (small() ? 6 : 2) != 0) continue;
                        const size_t count = random() % 4 == 0 ? random() % 3 : random() % 700;
                        Call call = draw(collective, n, type, op, count, inputs, random);
                        call.send_offset = random() % 3 == 0 ? random() % 16 : 0;
                        call.receive_offset = random() % 3 == 0 ? random() % 16 : 0;
                        check(ranks, call, launch);
                    }
    }
}

TEST_CASE("fused bodies of more than 16 ranks give the bits of their expansion", "[cuda]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs inputs(random);
    for (const int n : {17, 24, 72}) {
        VirtualRanks ranks(n);
        for (const Collective collective : collectives)
            for (const Launch& launch : launches_of(collective)) {
                if (n == 72 && (launch.blocks > 1 || random() % 3 != 0)) continue;
                if (small() && sanitized && random() % 6 != 0) continue;
                // Of packets, one round and several.
                for (const size_t count : {size_t(random() % 40), size_t(n == 72 ? 70 : 200)})
                    check(ranks, draw(collective, n, weftFloat64, weftSum, count, inputs, random), launch);
            }
    }
}

TEST_CASE("collectives of all kinds follow each other over the same words, some by steps", "[cuda]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs inputs(random);
    for (const int n : {2, 4}) {
        VirtualRanks ranks(n);
        const auto draw_one = [&] {
            const Collective collective = collectives[random() % std::size(collectives)];
            const int type = int(random() % weftNumTypes);
            return draw(collective, n, type, any_reduction_of(type, random),
                        random() % 8 == 0 ? random() % 1500 : random() % 100, inputs, random);
        };
        for (int i = 0; i < (small() ? 60 : 800); ++i) {
            Call call = draw_one();
            const auto launches = launches_of(call.collective());
            if (i % 4 != 0) {
                check(ranks, call, launches[random() % launches.size()]);
                continue;
            }
            // A rank that only sends would be an operation ahead if it did not wait.
            std::vector<const Algorithm*> rows;
            for (const Algorithm& row : registry::algorithms())
                if (row.collective == call.collective() && !row.refusal({.ranks = n, .rank = 0}) &&
                    cuda::refusal(row.build({.ranks = n, .rank = 0}, {1, call.root < 0 ? -1 : 0})).empty())
                    rows.push_back(&row);
            call.algorithm = rows[random() % rows.size()];
            call.tile_bytes = 256;
            if (const auto where = difference(call, ranks.run(call, {Body::steps}), expected(call)))
                FAIL_CHECK(*where << ": " << call.text());
        }
    }
}

TEST_CASE("a message of several rounds of packets keeps each giver's place", "[cuda]") {
    std::mt19937 random(5);
    const WildInputs inputs(random);
    VirtualRanks ranks(3);
    for (const Collective collective : collectives)
        for (const size_t count : {511, 512, 1025, 3000})
            check(ranks, draw(collective, 3, weftFloat64, weftSum, count, inputs, random), {Body::packet_one_shot, 2});
}

}  // namespace weft::internal::test
