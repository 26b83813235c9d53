// multicast_test.cpp: collectives by the switch: where the ranks use it, where they do not, and that each obstacle leaves
// them the other kernels. On eight GPUs of the fake driver, with WEFT_GPU_MULTICAST=3. Results of all collectives are
// those of collectives_test.cpp, which runs on the same machine.
#include "tests/device/calls.hpp"
#include "tests/fake_cuda/control.hpp"

namespace weft::internal::test {

namespace {

std::string planned(const Ranks& ranks, const char* collective, size_t count, weftDataType_t type = weftFloat32,
                    weftRedOp_t op = weftSum) {
    char text[8000];
    demand(weftCommExplainCollective(ranks.comms[0], collective, count, type, op, 0, text, sizeof text, nullptr));
    return text;
}
bool switched(const Ranks& ranks, const char* collective = "all_reduce", size_t count = 1000,
              weftDataType_t type = weftFloat32, weftRedOp_t op = weftSum) {
    return contains(planned(ranks, collective, count, type, op), "in device memory: multicast, ");
}

weftConfig_t in_rank_order() { return with_algo("one_shot,two_shot"); }

// Calls of every type, by the switch and by other kernels.
void check_results(const Ranks& ranks, std::mt19937& random) {
    for (const weftDataType_t type : {weftFloat32, weftFloat16, weftBfloat16, weftInt32})
        for (const size_t count : {size_t(0), size_t(1), size_t(7), size_t(1000 + random() % 99)})
            CHECK(compare(ranks, {type, weftSum, count, random() % 2 == 0, size_of(type) * (random() % 5)}, random) ==
                  "");
}

}  // namespace

TEST_CASE("ranks at one switch use it for the reductions that it has and for copies to all", "[.][multicast]") {
    std::mt19937 random(seed());
    const weftConfig_t config = in_rank_order();
    for (const int n : {2, 3, 8}) {
        const Ranks ranks(spread(n), &config);
        for (const char* collective : {"all_reduce", "reduce_scatter", "all_gather", "broadcast"}) {
            INFO(collective << ": " << planned(ranks, collective, 1000));
            CHECK(switched(ranks, collective));
            CHECK(switched(ranks, collective, 10'000'000, weftBfloat16));
        }
        CHECK(switched(ranks, "all_reduce", 1000, weftInt32));
        CHECK(switched(ranks, "reduce_scatter", 1000, weftUint8, weftBor));
        CHECK_FALSE(switched(ranks, "all_reduce", 1000, weftInt8));
        CHECK_FALSE(switched(ranks, "all_reduce", 1000, weftFloat8e4m3));
        CHECK_FALSE(switched(ranks, "all_reduce", 1000, weftFloat32, weftAvg));
        CHECK_FALSE(switched(ranks, "reduce"));
        check_results(ranks, random);
        // In several tiles, the last of which is short.
        if (n < 8) CHECK(compare(ranks, {weftFloat32, weftSum, 1'300'003, false, 4}, random) == "");
    }
}

TEST_CASE("devices whose switch reduces fp8 use it for that", "[.][multicast]") {
    std::mt19937 random(seed());
    fake::add_setting("sm 100");
    {
        const weftConfig_t config = in_rank_order();
        const Ranks ranks(spread(3), &config);
        for (const weftDataType_t type : {weftFloat8e4m3, weftFloat8e5m2}) {
            for (const weftRedOp_t op : {weftSum, weftMin, weftMax})
                CHECK(switched(ranks, "all_reduce", 1000, type, op));
            CHECK_FALSE(switched(ranks, "all_reduce", 1000, type, weftProd));
        }
    }
    fake::add_setting("sm 90");
    CHECK_FALSE(switched(Ranks(spread(3)), "all_reduce", 1000, weftFloat8e4m3));
}

TEST_CASE("a group of short calls by the switch is as right as one by one", "[.][multicast]") {
    const Ranks ranks(spread(3));
    const RankBuffers buffers(ranks, 4000);
    const std::vector<float> ones(1000, 1);
    for (const auto& buffer : buffers.all) buffer->write(ones.data(), 4000);
    demand(weftGroupStart());
    for (int rank = 0; rank < 3; ++rank)
        for (int part = 0; part < 5; ++part) {
            void* const at = static_cast<float*>(buffers[rank]) + 200 * part;
            demand(weftAllReduce(at, at, 200, weftFloat32, weftSum, ranks.comms[size_t(rank)],
                                 ranks.streams[size_t(rank)]->weft()));
        }
    demand(weftGroupEnd());
    ranks.finish();
    ranks.check_healthy();
    const std::vector<float> threes(1000, 3);
    for (const auto& buffer : buffers.all) CHECK(memcmp(buffer->read(4000).data(), threes.data(), 4000) == 0);
}

TEST_CASE("captured calls by the switch replay with new data, between calls that are not captured", "[.][multicast]") {
    constexpr size_t count = 3001;
    const Ranks ranks(spread(3));
    const RankBuffers inputs(ranks, 3 * count * 4), sums(ranks, 3 * count * 4), parts(ranks, count * 4);
    const auto enqueue = [&] {
        ranks.group([&](int rank) {
            return weftAllReduce(inputs[rank], sums[rank], 3 * count, weftFloat32, weftSum, ranks.comms[size_t(rank)],
                                 ranks.streams[size_t(rank)]->weft());
        });
        ranks.group([&](int rank) {
            return weftReduceScatter(inputs[rank], parts[rank], count, weftFloat32, weftSum, ranks.comms[size_t(rank)],
                                     ranks.streams[size_t(rank)]->weft());
        });
    };
    const Captured captured(ranks, enqueue);
    for (int round = 1; round <= 4; ++round) {
        std::vector<float> right(3 * count);
        for (int rank = 0; rank < 3; ++rank) {
            std::vector<float> input(3 * count);
            for (size_t i = 0; i < input.size(); ++i) right[i] += input[i] = float(round * (rank + 1) + int(i % 97));
            inputs.all[size_t(rank)]->write(input.data(), input.size() * 4);
        }
        round % 2 == 0 ? enqueue() : captured.launch();
        ranks.finish();
        ranks.check_healthy();
        for (size_t rank = 0; rank < 3; ++rank) {
            CHECK(memcmp(sums.all[rank]->read(3 * count * 4).data(), right.data(), 3 * count * 4) == 0);
            CHECK(memcmp(parts.all[rank]->read(count * 4).data(), right.data() + rank * count, count * 4) == 0);
        }
    }
}

TEST_CASE("if a driver's call for the switch fails on some rank, all ranks use other kernels", "[.][multicast]") {
    std::mt19937 random(seed());
    const weftConfig_t config = in_rank_order();
    for (const char* fault : {"cuMulticastGetGranularity 1", "cuMulticastCreate 1", "cuMemExportToShareableHandle 1",
                              "cuMemImportFromShareableHandle 2", "cuMulticastAddDevice 1", "cuMulticastAddDevice 3",
                              "cuMemCreate 2", "cuMulticastBindMem 2", "cuMemMap 5", "cuMemSetAccess 6"}) {
        INFO(fault);
        const std::string function = std::string(fault).substr(0, std::string(fault).find(' '));
        // Ranks of one process have no other use for these calls while they join.
        fake::add_setting("fault " + std::string(fault) + " 802");
        const int before = fake::calls(function);
        {
            const Ranks ranks(spread(3), &config);
            CHECK(fake::calls(function) > before);
            CHECK_FALSE(switched(ranks));
            check_results(ranks, random);
        }
        // The next communicator has it.
        CHECK(switched(Ranks(spread(3), &config)));
    }
}

TEST_CASE("ranks whose devices differ or are shared, and deterministic ones, do not use the switch", "[.][multicast]") {
    std::mt19937 random(seed());
    {
        const weftConfig_t config = in_rank_order();
        const Ranks shared({0, 1, 0}, &config);
        CHECK_FALSE(switched(shared));
        check_results(shared, random);
    }
    {
        weftConfig_t config = WEFT_CONFIG_INITIALIZER;
        config.deterministic = 1;
        const Ranks ranks(spread(3), &config);
        CHECK_FALSE(switched(ranks));
        CHECK_FALSE(switched(ranks, "all_gather"));
        check_results(ranks, random);
    }
    // The devices' facts are read when no communicator has them.
    fake::add_setting("attribute 2 132 0");
    const int before = fake::calls("cuMulticastCreate");
    {
        const weftConfig_t config = in_rank_order();
        const Ranks ranks(spread(3), &config);
        CHECK_FALSE(switched(ranks));
        check_results(ranks, random);
        CHECK(switched(Ranks(spread(2))));
    }
    CHECK(fake::calls("cuMulticastCreate") == before + 1);
    fake::add_setting("attribute 2 132 1");
    CHECK(switched(Ranks(spread(3))));
}

TEST_CASE("communicators by the switch one after the other and at once give their memory back", "[.][multicast]") {
    std::mt19937 random(seed());
    for (int round = 0; round < 3; ++round) {
        const Ranks ranks(spread(2));
        const weftConfig_t config = in_rank_order();
        const Ranks others(spread(3), &config);
        CHECK((switched(ranks) && switched(others)));
        check_results(others, random);
    }
}

}  // namespace weft::internal::test
