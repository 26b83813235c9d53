// exact_test.cpp: results against arithmetic without a schedule: integers and whole numbers exactly, other floats
// within what their roundings may add; and every rank with the same bits. It shares nothing with the executor but the
// number formats.
#include <set>

#include "tests/executor/wild_inputs.hpp"

namespace weft::internal::test {
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
                    if (small() && random() % (sanitized ? 24 : 8) != 0) continue;
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
                    call.exports_buffers = random() % 2;
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

namespace {

bool reduces(const Algorithm& row) { return facts_of(row.collective).reduces; }

}  // namespace

TEST_CASE("averages and scaled sums of the largest and of subnormal numbers are within a rounding for each rank",
          "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    std::set<std::string> names;
    for (int n = 2; n <= 9; ++n) {
        LocalRanks one_host(n), several_hosts(n);
        for (const Algorithm& row : registry::algorithms())
            for (int type = 0; type < weftNumTypes; ++type)
                for (const int op : {int(weftAvg), premul}) {
                    if (!reduces(row) || (op == premul && is_integer(weftDataType_t(type)))) continue;
                    if (small() && random() % 8 != 0) continue;
                    Call call;
                    call.algorithm = &row;
                    if (row.refusal({.ranks = n, .rank = 0})) call.hosts = hosts_in_blocks(n, std::min(n, 3));
                    if (row.refusal({n, 0, call.hosts})) continue;
                    names.insert(fmt::format("{} {}", name_of(row.collective), row.name));
                    LocalRanks& ranks = call.hosts.empty() ? one_host : several_hosts;
                    call.type = weftDataType_t(type);
                    call.op = op;
                    call.root = facts_of(row.collective).rooted ? int(random() % unsigned(n)) : -1;
                    call.tile_bytes = 128;
                    call.inputs = reference::extremes(
                        call.type, 72 * size_t(call.collective() == Collective::reduce_scatter ? n : 1), n, random);
                    int power = 1;
                    while (power < n) power *= 2;
                    if (op == premul) {
                        const Bytes scalar = with_datatype(call.type, [&](auto t) {
                            using A = Arithmetic<decltype(t)::value>;
                            const auto element = A::round(typename A::Accumulator(1.0 / power));
                            const auto* first = reinterpret_cast<const std::byte*>(&element);
                            return Bytes(first, first + sizeof element);
                        });
                        call.scalars.assign(size_t(n), scalar);
                    }
                    const auto got = ranks.run(call, random);
                    const bool wide = op == weftAvg && call.in_one_place() && size_of(call.type) <= 2;
                    for (int rank = 0; rank < n; ++rank) {
                        if (call.output_held(rank) == Held::nothing) continue;
                        const size_t wrong =
                            reference::first_beyond_roundings(call.type, call.contributions_to(rank),
                                                              op == premul ? power : n, wide, got[size_t(rank)].data());
                        if (wrong != 72) FAIL_CHECK("rank " << rank << ", element " << wrong << ": " << call.text());
                        if (call.collective() == Collective::all_reduce && got[size_t(rank)] != got[0])
                            FAIL_CHECK("rank " << rank << " has other bits than rank 0: " << call.text());
                    }
                }
    }
    for (const char* name : {"ring", "double_binary_tree", "two_level_ring", "rank_order", "one_shot", "two_shot"})
        CHECK(names.count(fmt::format("{} {}", name_of(Collective::all_reduce), name)) == 1);
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

TEST_CASE("the reference of averages objects to an infinity, and to the neighbour of equal numbers", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    for (int type = 0; type < weftNumTypes; ++type) {
        if (is_integer(weftDataType_t(type))) continue;
        const size_t size = size_of(weftDataType_t(type));
        // The first numbers of these are the largest, equal on all ranks.
        const std::vector<Bytes> inputs = reference::extremes(weftDataType_t(type), 12, 4, random);
        const auto wrong = [&](const Bytes& result) {
            return reference::first_beyond_roundings(weftDataType_t(type), inputs, 4, false, result.data());
        };
        Bytes result(inputs[0].begin(), inputs[0].begin() + ptrdiff_t(size));
        result.resize(12 * size);
        CHECK(wrong(result) != 0);
        result[0] ^= std::byte{1};
        CHECK(wrong(result) == 0);
        std::fill_n(result.begin(), size, std::byte{0x7f});
        result[size > 1 ? size - 2 : 0] = std::byte(type == weftFloat8e5m2 ? 0x7c : size > 1 ? 0x80 : 0x7f);
        CHECK(wrong(result) == 0);
    }
}

}  // namespace weft::internal::test
