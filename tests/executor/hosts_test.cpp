// hosts_test.cpp: schedules over connections and over the flag blocks of several hosts, against the sequential
// interpreter, bit for bit. The hosts are simulated: all ranks share one segment, but only those of a host meet on its
// flag block.
#include "tests/executor/checked_runs.hpp"
#include "tests/executor/wild_inputs.hpp"

namespace weft::internal::test {
namespace {

// Hosts of about the same size, of very different sizes, or whose ranks are dealt out in turn.
std::vector<int32_t> random_hosts(int ranks, std::mt19937& random) {
    const int hosts = 1 + int(random() % uint32_t(std::min(4, ranks)));
    if (random() % 2) return hosts_in_blocks(ranks, hosts);
    std::vector<int32_t> of;
    const bool lonely = random() % 2;
    for (int rank = 0; rank < ranks; ++rank) of.push_back(lonely ? std::min(rank, hosts - 1) : rank % hosts);
    return of;
}

void give_root(Call& call, int ranks, std::mt19937& random) {
    if (facts_of(call.collective()).rooted) call.root = int(random() % uint32_t(ranks));
}

Call random_call(const WildInputs& wild, const std::vector<int32_t>& hosts, size_t count_most, std::mt19937& random) {
    const int ranks = int(hosts.size());
    Call call;
    call.hosts = hosts;
    do call.algorithm = &registry::algorithms()[random() % registry::algorithms().size()];
    while (call.algorithm->refusal({ranks, 0, hosts}));
    give_root(call, ranks, random);
    call.type = weftDataType_t(random() % weftNumTypes);
    call.op = facts_of(call.collective()).reduces ? any_reduction_of(call.type, random) : int(weftSum);
    call.tile_bytes = 64 * (1 + random() % (random() % 4 ? 8 : 64));
    const size_t counts[] = {0, 1, 17, random() % 64, random() % count_most};
    wild.fill(call, ranks, counts[random() % std::size(counts)], random);
    call.pipelined = call.tiles() >= 4 && random() % 2;
    if (call.collective() != Collective::all_to_all && random() % 2) call.in_place = random_flags(ranks, random);
    if (call.algorithm == registry::find_algorithm("ring", call.collective())) call.channels = 1 + int(random() % 3);
    call.send_offset = random() % 2 ? 0 : random() % 64;
    call.receive_offset = random() % 2 ? 0 : random() % 64;
    call.stores = random() % 4 ? Stores::ordinary : Stores::streaming;
    return call;
}

}  // namespace

TEST_CASE("every algorithm leaves the interpreter's bits on hosts of every shape", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    for (const int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16})
        for (int hosts = 1; hosts <= std::min(4, n); ++hosts) {
            if (small() && n > 3 && n != 8 && (n + hosts) % 3 != 0) continue;
            LocalRanks ranks(n);
            for (const Algorithm& row : registry::algorithms())
                for (int type = 0; type < weftNumTypes; ++type)
                    for (const int op : reductions_of(type)) {
                        const uint32_t one_of = !small() ? 2 : sanitized ? 60 : 12;
                        if (random() % (facts_of(row.collective).reduces ? 2 * one_of : one_of) != 0) continue;
                        Call call;
                        call.algorithm = &row;
                        call.hosts = hosts_in_blocks(n, hosts);
                        if (row.refusal({n, 0, call.hosts})) continue;
                        // A collective without a reduction ignores the elements' type.
                        if (op > 0 && !facts_of(row.collective).reduces) continue;
                        give_root(call, n, random);
                        call.type = weftDataType_t(type);
                        call.op = op;
                        call.tile_bytes = 64 * (1 + random() % 32);
                        wild.fill(call, n, random() % 4 ? random() % 400 : 3001, random);
                        if (call.collective() != Collective::all_to_all && random() % 2)
                            call.in_place = random_flags(n, random);
                        call.send_offset = random() % 64;
                        check(ranks, {call}, Driver::turns, random);
                    }
        }
}

TEST_CASE("random sequences of calls on hosts of every shape, in turns, leave the interpreter's bits", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    for (int round = 0; round < (small() ? 4 : 40); ++round) {
        const int n = 1 + int(random() % 9);
        LocalRanks ranks(n);
        const auto hosts = random_hosts(n, random);
        std::vector<Call> calls;
        for (int i = 0; i < (small() ? 10 : 60); ++i) calls.push_back(random_call(wild, hosts, 2000, random));
        check(ranks, calls, Driver::turns, random);
    }
}

TEST_CASE("random sequences of calls on several hosts, a thread a rank, leave the interpreter's bits", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    for (const int n : {2, 4, 7, 16}) {
        LocalRanks ranks(n);
        const auto hosts = hosts_in_blocks(n, std::min(n, 3));
        std::vector<Call> calls;
        for (int i = 0; i < (small() ? 10 : 80); ++i) calls.push_back(random_call(wild, hosts, 5000, random));
        check(ranks, calls, Driver::threads, random);
    }
}

TEST_CASE("tiles overlap: the flag block of a host works on later tiles while an earlier one is still in flight",
          "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    // Two hosts of two; the ranks of the second do nothing.
    LocalRanks ranks(4);
    Call call;
    call.algorithm = registry::find_algorithm("two_level_ring");
    call.hosts = {0, 0, 1, 1};
    call.tile_bytes = 256;
    wild.fill(call, 4, 640, random);
    REQUIRE(call.tiles() == 10);
    CHECK(ranks.tiles_entered(call, {0, 1}) == 3);
}

}  // namespace weft::internal::test
