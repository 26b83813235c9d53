// exact_test.cpp: results against arithmetic without a schedule: integers and whole numbers exactly, other floats
// within what their roundings may add; and every rank with the same bits. It shares nothing with the executor but the
// number formats.
#include "tests/executor/wild_inputs.hpp"

namespace weft::test {
namespace {

enum class Data { whole, mild };

void fill(Call& call, int n, size_t count, Data data, std::mt19937& random) {
    for (int rank = 0; rank < n; ++rank) {
        call.inputs.push_back(data == Data::whole ? reference::whole(call.type, count, n, rank, random)
                                                  : reference::mild(call.type, count, random));
        if (call.op == premul)
            call.scalars.push_back(data == Data::whole ? reference::whole_scalar(call.type, random)
                                                       : reference::mild(call.type, 1, random));
    }
}

}  // namespace

TEST_CASE("whole numbers are exact and other numbers within the bound of their roundings, alike on every rank",
          "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const Data data = GENERATE(Data::whole, Data::mild);
    for (const int n : {2, 3, 4, 5, 6, 7, 8, 9, 16}) {
        LocalRanks one_host(n), several_hosts(n);
        for (const Algorithm& row : registry::algorithms())
            for (int type = 0; type < weftNumTypes; ++type)
                for (const int op : reductions_of(type)) {
                    if (row.collective != Collective::all_reduce) continue;
                    if (n > 5 && random() % 2 != 0) continue;
                    if (small() && random() % 8 != 0) continue;
                    if (data == Data::whole && op == weftProd) continue;  // they would overflow
                    Call call;
                    call.algorithm = &row;
                    if (row.refusal({.ranks = n, .rank = 0})) call.hosts = hosts_in_blocks(n, std::min(n, 3));
                    if (row.refusal({n, 0, call.hosts})) continue;
                    LocalRanks& ranks = call.hosts.empty() ? one_host : several_hosts;
                    call.channels = call.algorithm == registry::find_algorithm("ring") ? 1 + int(random() % 3) : 1;
                    call.type = weftDataType_t(type);
                    call.op = op;
                    call.tile_bytes = 512;
                    fill(call, n, 500 + random() % 20, data, random);
                    call.pipelined = random() % 2;
                    call.offers = random() % 2;
                    const auto got = ranks.run(call, random);
                    const reference::Question question{call.type, op == premul ? weftSum : weftRedOp_t(op),
                                                       &call.inputs, op == premul ? &call.scalars : nullptr};
                    const size_t count = call.operation().count,
                                 wrong = reference::first_wrong(question, got[0].data(), data == Data::whole);
                    if (wrong != count) FAIL_CHECK("element " << wrong << ": " << call.text());
                    for (int rank = 1; rank < n; ++rank)
                        if (got[size_t(rank)] != got[0])
                            FAIL_CHECK("rank " << rank << " has other bits than rank 0: " << call.text());
                }
    }
}

TEST_CASE("the exact reference objects to the last bit of an integer and to an error beyond the bound", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    for (int type = 0; type < weftNumTypes; ++type) {
        const std::vector<Bytes> inputs(2, reference::whole(weftDataType_t(type), 100, 2, 0, random));
        Call call;
        call.algorithm = registry::find_algorithm("one_shot");
        call.type = weftDataType_t(type);
        call.tile_bytes = 4096;
        call.inputs = inputs;
        Bytes result = expected(call)[0];
        const reference::Question question{call.type, weftSum, &inputs, nullptr};
        REQUIRE(reference::first_wrong(question, result.data(), true) == 100);
        result[57 * size_of(call.type)] ^= std::byte{1};
        CHECK(reference::first_wrong(question, result.data(), true) == 57);
        result[57 * size_of(call.type)] ^= std::byte{1};
        // The exponent's highest bit, or the second highest of an integer: far beyond any rounding.
        std::byte& top = result[20 * size_of(call.type) + size_of(call.type) - 1];
        top ^= std::byte{0x40};
        CHECK(reference::first_wrong(question, result.data(), false) == 20);
    }
}

}  // namespace weft::test
