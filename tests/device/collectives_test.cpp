// collectives_test.cpp: every collective on device memory, bit for bit equal to its expansion in rank order. Tested
// with the kernels that a communicator chooses and with steps, on data that is exact in any order. Every type,
// reduction and root; in place and out of place; in sequences, in graphs, on several streams.
#include <algorithm>

#include "tests/device/calls.hpp"
#include "tests/fake_cuda/control.hpp"

namespace weft::internal::test {

namespace {

constexpr Collective collectives[] = {Collective::all_reduce, Collective::broadcast,      Collective::reduce,
                                      Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all,
                                      Collective::gather,     Collective::scatter};

// Whether sums come in the order of ranks, so that any data will do.
enum class Order { of_ranks, any };

Call draw(Collective collective, int n, weftDataType_t type, int op, size_t count, Order order, std::mt19937& random) {
    const CollectiveFacts facts = facts_of(collective);
    Call call;
    call.algorithm = registry::find_algorithm("one_shot", collective);
    REQUIRE(call.algorithm);
    call.root = facts.rooted ? int(random() % unsigned(n)) : -1;
    call.type = type;
    call.op = facts.reduces ? op : weftSum;
    if (order == Order::any && call.op == weftProd) call.op = weftMax;
    for (int rank = 0; rank < n; ++rank) {
        const size_t held = count * size_t(parts_held(call.input_held(rank), parts_of(collective, n)));
        call.inputs.push_back(order == Order::any ? reference::whole(type, held, n, rank, random)
                                                  : reference::mild(type, held, random));
        if (call.op == premul)
            call.scalars.push_back(order == Order::any ? reference::whole_scalar(type, random)
                                                       : reference::mild(type, 1, random));
        call.in_place.push_back(!facts.transposes && random() % 2 == 0);
    }
    if (random() % 2) call.send_offset = random() % 4 * size_of(type);
    if (random() % 2) call.receive_offset = random() % 4 * size_of(type);
    call.tile_bytes = std::max<size_t>(64, count * size_of(type));
    return call;
}

void check(const Call& call, const Buffers& buffers) {
    if (const auto where = difference(call, buffers.results(), expected(call))) FAIL_CHECK(*where);
    if (const int rank = buffers.spoilt(call); rank >= 0)
        FAIL_CHECK("rank " << rank << " wrote what is not its result: " << call.text());
}
// Whether copy engines must serve the call: on the fake driver, ranks with a device each.
bool without_kernels(const Ranks& ranks, const Call& call) {
    const char* policy = getenv("WEFT_GPU_BLOCK_POLICY");
    const bool served = call.collective() == Collective::all_gather || call.collective() == Collective::all_to_all;
    return policy && std::string(policy) == "1" && served && !call.inputs[0].empty() && ranks.count() <= devices();
}

void check(const Ranks& ranks, const Call& call) {
    const Buffers buffers(ranks, call);
    const bool copies = without_kernels(ranks, call);
    const int before = copies ? fake::calls("cuStreamBatchMemOp") : 0;
    enqueue(ranks, call, buffers);
    if (copies) CHECK(fake::calls("cuStreamBatchMemOp") - before == 2 * ranks.count());
    ranks.finish();
    ranks.check_healthy();
    check(call, buffers);
}

// Every rank is a host of its own: all goes by steps.
bool several_hosts() {
    const char* transports = getenv("WEFT_TRANSPORTS");
    return transports && std::string(transports) == "tcp";
}

std::vector<int> rank_counts() {
    if (!small()) return {1, 2, 3, 4, 5, 8};
    return sanitized ? std::vector{1, 2, 3} : std::vector{1, 2, 3, 8};
}

// Every collective with so many bytes of a part, roughly; each type, each reduction where there is one.
void check_table(const Ranks& ranks, Order order, std::mt19937& random) {
    for (const Collective collective : collectives)
        for (int type = 0; type < weftNumTypes; ++type)
            for (const int op : facts_of(collective).reduces ? reductions_of(type) : std::vector<int>{weftSum})
                for (const size_t count : {size_t(0), size_t(1), size_t(random() % 300), 1000 + random() % 2000}) {
                    // The table is large: each row of it in its turn.
                    if (random() % (!small() ? 3 : sanitized ? 36 : 24) != 0) continue;
                    check(ranks, draw(collective, ranks.count(), weftDataType_t(type), op, count, order, random));
                }
}

}  // namespace

TEST_CASE("every collective, type, reduction and root gives the bits of rank order", "[collectives][switch][copies]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    for (const int n : rank_counts()) {
        INFO(n << " ranks");
        check_table(Ranks(spread(n)), several_hosts() ? Order::any : Order::of_ranks, random);
    }
}

TEST_CASE("long messages of every collective go through peers' memory, in place and staged", "[collectives][switch]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const Order order = several_hosts() ? Order::any : Order::of_ranks;
    for (const int n : small() ? std::vector{2} : std::vector{2, 3, 8}) {
        const Ranks ranks(spread(n));
        for (const Collective collective : collectives)
            // Scaled input is staged. Both run in several tiles, the last of which is short.
            for (const int op : {int(weftSum), int(premul)})
                for (const size_t bytes : {size_t(600'004), size_t(small() ? 1'200'012 : 4'800'012)}) {
                    if (op == premul && !facts_of(collective).reduces) continue;
                    if (small() && sanitized && random() % 3 != 0) continue;
                    if (bytes > 2'000'000 && n > 3) continue;  // the reference takes its time
                    check(ranks, draw(collective, n, weftFloat32, op, bytes / 4, order, random));
                }
        // Bytes in words of all sizes.
        for (const Collective collective : {Collective::broadcast, Collective::all_gather})
            for (const size_t bytes : {700'001, 700'004, 700'008})
                check(ranks, draw(collective, n, weftInt8, weftSum, bytes, order, random));
    }
}

TEST_CASE("every collective runs by steps where no fused kernel is allowed", "[collectives]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const weftConfig_t config = with_algo("^one_shot,^two_shot");
    for (const int n : rank_counts()) {
        INFO(n << " ranks");
        const Ranks ranks(spread(n), &config);
        check_table(ranks, Order::any, random);
        for (const Collective collective : collectives)
            check(ranks, draw(collective, n, weftInt32, weftSum, small() ? 70'001 : 200'003, Order::any, random));
    }
}

TEST_CASE("each algorithm of each collective runs by steps", "[collectives]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    for (const char* algo : {"ring", "binomial_tree", "linear", "halving_doubling", "pat", "all_pairs"})
        for (const int n : small() ? std::vector{4} : std::vector{2, 3, 5, 8}) {
            INFO(algo << " on " << n << " ranks");
            const weftConfig_t config = with_algo(algo);
            const Ranks ranks(spread(n), &config);
            for (const Collective collective : collectives)
                for (const size_t count : {size_t(1 + random() % 300), size_t(20'000 + random() % 9)}) {
                    if (small() && random() % 2 != 0) continue;
                    check(ranks, draw(collective, n, weftInt64, weftSum, count, Order::any, random));
                    if (facts_of(collective).reduces)
                        check(ranks, draw(collective, n, weftInt64, premul, count, Order::any, random));
                }
        }
}

TEST_CASE("domains of 17, 24 and 72 ranks run fused kernels", "[collectives][large]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const Order order = several_hosts() ? Order::any : Order::of_ranks;
    for (const int n : small() ? std::vector{17} : std::vector{17, 24, 72}) {
        const Ranks ranks(spread(n));
        char text[8000];
        demand(weftCommExplain(ranks.comms[0], 100, weftFloat32, weftSum, text, sizeof text, nullptr));
        // Not where the network is all there is, nor where too many ranks share a device.
        const char* const machine = getenv("FAKE_CUDA");
        if (machine && (contains(machine, "fabric") || (!several_hosts() && devices() >= 8)))
            CHECK_THAT(text, Catch::Contains("in device memory: packet_one_shot"));
        for (const Collective collective : collectives)
            for (const size_t count : {size_t(0), size_t(5), size_t(n == 72 ? 1'000 : 9'000)})
                check(ranks, draw(collective, n, weftFloat32, weftSum, count, order, random));
    }
}

TEST_CASE("17 ranks by steps", "[collectives]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const weftConfig_t config = with_algo("^one_shot,^two_shot");
    const Ranks ranks(spread(17), &config);
    for (const Collective collective : collectives) {
        if (collective == Collective::all_to_all && devices() < 4) {
            // A block for each pair, or for each round, and the ranks of a device share it.
            const DeviceBuffer from(ranks.placing[0], 17 * 4), to(ranks.placing[0], 17 * 4);
            CHECK_REFUSED(weftAlltoAll(from.data(), to.data(), 1, weftInt32, ranks.comms[0], ranks.streams[0]->weft()),
                          ranks.comms[0], "gpu.not-served");
            CHECK_THAT(weftGetLastError(ranks.comms[0]), Catch::Contains("17 blocks, and there is room for"));
            continue;
        }
        // Trees have a block for each child: too many where all ranks share one device.
        if (facts_of(collective).rooted && devices() < 4) continue;
        for (const size_t count : {size_t(0), size_t(5), size_t(9'000)}) {
            if (small() && random() % 2 != 0) continue;
            check(ranks, draw(collective, 17, weftInt32, weftSum, count, Order::any, random));
        }
    }
}

TEST_CASE("collectives of all kinds are enqueued one behind the other without waiting", "[collectives][switch]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    for (const char* algo : {static_cast<const char*>(nullptr), "^one_shot,^two_shot", "ring,one_shot"}) {
        const int n = small() ? 3 : 4;
        const weftConfig_t config = with_algo(algo);
        const Ranks ranks(spread(n), &config);
        std::vector<Call> calls;
        std::vector<std::unique_ptr<Buffers>> buffers;
        for (int i = 0; i < (small() ? 15 : 60); ++i) {
            const size_t count = random() % 4 == 0 ? random() % 60'000 : random() % 50;
            calls.push_back(draw(collectives[random() % std::size(collectives)], n, weftInt32,
                                 int(random() % (premul + 1)), count, Order::any, random));
            buffers.push_back(std::make_unique<Buffers>(ranks, calls.back()));
        }
        for (size_t i = 0; i < calls.size(); ++i) enqueue(ranks, calls[i], *buffers[i]);
        ranks.finish();
        ranks.check_healthy();
        for (size_t i = 0; i < calls.size(); ++i) check(calls[i], *buffers[i]);
    }
}

// WEFT_TEST_CALLS: how many. Two inputs in turns, so that what an earlier call has left is wrong for the next; before the
// last of each nothing is left of results.
TEST_CASE("calls of random kinds, twenty of each in a row, leave the results of the last ones",
          "[collectives][switch][repeats]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    constexpr int in_a_row = 20;
    const char* const given = getenv("WEFT_TEST_CALLS");
    const long calls = given ? atol(given) : small() ? 3 * in_a_row : 100 * in_a_row;
    REQUIRE(calls > 0);
    const weftConfig_t config = with_algo(GENERATE(as<const char*>(), nullptr, "^one_shot,^two_shot"));
    const int n = 4;
    const Ranks ranks(spread(n), &config);
    for (long made = 0; made < calls / 2; made += in_a_row) {
        const weftDataType_t types[] = {weftFloat32, weftBfloat16, weftInt8, weftFloat64};
        const size_t count = random() % 8 == 0 ? random() % 60'000 : random() % 1000;
        const Call one = [&] {
            Call call = draw(collectives[random() % std::size(collectives)], n, types[random() % std::size(types)],
                             weftSum, count, Order::any, random);
            call.in_place.clear();  // it would be another call's input the second time
            return call;
        }();
        Call other = one;
        for (int rank = 0; rank < n; ++rank) {
            Bytes& input = other.inputs[size_t(rank)];
            input = reference::whole(other.type, input.size() / size_of(other.type), n, rank, random);
        }
        const Buffers of_one(ranks, one), of_other(ranks, other);
        for (int i = 0; i < in_a_row; i += 2) {
            if (i == in_a_row - 2)
                for (const Buffers* buffers : {&of_one, &of_other}) buffers->forget_results(ranks);
            enqueue(ranks, one, of_one);
            enqueue(ranks, other, of_other);
        }
        ranks.finish();
        ranks.check_healthy();
        check(one, of_one);
        check(other, of_other);
    }
}

TEST_CASE("captured collectives of every kind replay, their first call captured", "[collectives][switch]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const weftConfig_t config = with_algo(GENERATE(as<const char*>(), nullptr, "^one_shot,^two_shot"));
    const int n = 3;
    const Ranks ranks(spread(n), &config);
    std::vector<Call> calls;
    std::vector<std::unique_ptr<Buffers>> buffers;
    for (const Collective collective : collectives)
        for (const size_t count : {size_t(7), size_t(90'000)}) {
            calls.push_back(draw(collective, n, weftInt32, weftSum, count, Order::any, random));
            calls.back().in_place.clear();  // a replay begins with the same inputs
            buffers.push_back(std::make_unique<Buffers>(ranks, calls.back()));
        }
    std::vector<CUgraphExec> graphs(size_t(n), nullptr);
    for (int rank = 0; rank < n; ++rank) {
        const Current current(ranks.placing[size_t(rank)]);
        demand(cuStreamBeginCapture(ranks.streams[size_t(rank)]->handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    }
    for (size_t i = 0; i < calls.size(); ++i) enqueue(ranks, calls[i], *buffers[i]);
    for (int rank = 0; rank < n; ++rank) {
        const Current current(ranks.placing[size_t(rank)]);
        CUgraph graph;
        demand(cuStreamEndCapture(ranks.streams[size_t(rank)]->handle, &graph));
        demand(cuGraphInstantiateWithFlags(&graphs[size_t(rank)], graph, 0));
        demand(cuGraphDestroy(graph));
    }
    for (int round = 0; round < 3; ++round) {
        for (int rank = 0; rank < n; ++rank) {
            const Current current(ranks.placing[size_t(rank)]);
            demand(cuGraphLaunch(graphs[size_t(rank)], ranks.streams[size_t(rank)]->handle));
        }
        check(ranks, draw(Collective::all_gather, n, weftInt32, weftSum, 100, Order::any, random));
        for (size_t i = 0; i < calls.size(); ++i) check(calls[i], *buffers[i]);
    }
    for (CUgraphExec graph : graphs) demand(cuGraphExecDestroy(graph));
}

TEST_CASE("different collectives or roots are an error that names both", "[collectives]") {
    const char* const algo = GENERATE(as<const char*>(), nullptr, "^one_shot,^two_shot");
    const bool roots = GENERATE(true, false);
    // Between hosts two roots that send to each other are done, and hear of it in their next call.
    if (roots && several_hosts()) return;
    const weftConfig_t config = with_algo(algo);
    const Ranks ranks(spread(2), &config);
    const DeviceBuffer first(ranks.placing[0], 4000), second(ranks.placing[1], 4000);
    weftComm_t const* const comms = ranks.comms.data();
    demand(weftBroadcast(first.data(), first.data(), 100, weftInt32, 0, comms[0], ranks.streams[0]->weft()));
    if (roots)
        demand(weftBroadcast(second.data(), second.data(), 100, weftInt32, 1, comms[1], ranks.streams[1]->weft()));
    else
        demand(
            weftAllReduce(second.data(), second.data(), 100, weftInt32, weftSum, comms[1], ranks.streams[1]->weft()));
    for (const int rank : {0, 1}) {
        CHECK(ranks.await_failure(rank) == weftMismatch);
        void* const own = (rank == 0 ? first : second).data();
        CHECK(weftAllReduce(own, own, 1, weftInt32, weftSum, comms[rank], ranks.streams[size_t(rank)]->weft()) ==
              weftMismatch);
        CHECK_THAT(weftGetLastError(comms[rank]),
                   Catch::Contains("rank 0 called broadcast of 100") &&
                       Catch::Contains(roots ? "rank 1 called broadcast of 100" : "rank 1 called all_reduce of 100"));
    }
    ranks.finish();
}

TEST_CASE("buffers of parts are checked whole, and those that a rank has no use for not at all", "[collectives]") {
    const Ranks ranks(spread(2));
    const DeviceBuffer part(ranks.placing[0], 4095), whole(ranks.placing[0], 8191);
    CHECK_REFUSED(weftAllGather(whole.data(), part.data(), 1024, weftInt32, ranks.comms[0], ranks.streams[0]->weft()),
                  ranks.comms[0], "memory.bounds");
    CHECK_THAT(weftGetLastError(ranks.comms[0]), Catch::Contains(" 4096 bytes"));
    std::vector<int> host(2048);
    CHECK_REFUSED(weftGather(part.data(), host.data(), 1024, weftInt32, 0, ranks.comms[0], ranks.streams[0]->weft()),
                  ranks.comms[0], "memory.kind");
    // Rank 1 gathers nothing, so its recvbuff may be any.
    const DeviceBuffer other(ranks.placing[1], 4096);
    ranks.group([&](int rank) {
        return weftGather(rank == 0 ? part.data() : other.data(),
                          rank == 0 ? whole.data() : static_cast<void*>(host.data()), 1024, weftInt32, 0,
                          ranks.comms[size_t(rank)], ranks.streams[size_t(rank)]->weft());
    });
    ranks.finish();
    ranks.check_healthy();
}

}  // namespace weft::internal::test
