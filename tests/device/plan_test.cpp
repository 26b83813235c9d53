// plan_test.cpp: which kernel serves an operation on device memory: alike on all ranks, within what kernels can do.
#include "src/base/name_list.hpp"
#include "src/gpu/engine/device_plan.hpp"
#include "src/gpu/engine/gpu_engine.hpp"
#include "src/registry.hpp"
#include "src/selector/fused_rows.hpp"
#include "src/selector/selector.hpp"

#include <set>

#include "tests/catch.hpp"
#include "tests/error.hpp"

namespace weft::internal::test {

namespace {

Operation operation_of(size_t bytes) {
    Operation operation;
    operation.collective = Collective::all_reduce;
    operation.type = weftInt8;
    operation.count = bytes;
    return operation;
}

DevicePlan plan_of(size_t bytes, const DeviceLayout& layout) {
    auto plan = plan_on_device(operation_of(bytes), layout);
    REQUIRE(plan.ok());
    return *plan;
}

// Without steps.
DeviceLayout fused_layout(int ranks, int blocks_max, const std::string& algo) {
    DeviceLayout layout{ranks, blocks_max, algo};
    layout.rules = AlgoRules(algo, Layout{ranks}, registry::algorithms());
    return layout;
}

// As GpuJoin::plan() makes it.
DeviceLayout layout_of(const Layout& ranks, int blocks_max, const std::string& algo, int channels = 0,
                       uint32_t capabilities = ~uint32_t(0)) {
    DeviceLayout layout = fused_layout(ranks.ranks, blocks_max, "");
    layout.support.capabilities = capabilities;
    layout.algo = algo;
    layout.rules = AlgoRules(algo, ranks, registry::algorithms());
    layout.hosts = ranks.host_count();
    StepAlgorithms steps = step_algorithms({.rows = registry::algorithms(),
                                            .own = [&](Collective one) { return needs_steps(layout, one); },
                                            .rules = layout.rules,
                                            .channels = channels,
                                            .blocks_max = blocks_max,
                                            .link_mbps = layout.hosts > 1 ? 100'000 : 0},
                                           ranks, 0);
    layout.steps = std::move(steps.rows);
    layout.excluded = std::move(steps.excluded);
    return layout;
}
DeviceLayout layout_of(int ranks, int blocks_max, const std::string& algo, int channels = 0) {
    return layout_of(Layout{ranks}, blocks_max, algo, channels);
}

DeviceFacts facts_of(uint8_t device, int resident_blocks) {
    DeviceFacts facts{};
    facts.use = DeviceFacts::usable;
    facts.uuid[0] = device;
    facts.resident_blocks = resident_blocks;
    return facts;
}

}  // namespace

TEST_CASE("longer messages take kernels for longer messages, and grids that kernels allow") {
    for (int ranks = 1; ranks <= cuda::ranks_max; ++ranks)
        for (const int blocks_max : {1, 7, cuda::blocks_max}) {
            const DeviceLayout layout{ranks, blocks_max, ""};
            DevicePlan before = plan_of(0, layout);
            CHECK(before.body == cuda::Body::packet_one_shot);
            CHECK(before.blocks == 1);
            for (size_t bytes = 1; bytes < size_t(1) << 34; bytes = bytes * 5 / 4 + 1) {
                const DevicePlan plan = plan_of(bytes, layout);
                CHECK(plan.body >= before.body);
                if (plan.body == before.body) CHECK(plan.blocks >= before.blocks);
                CHECK((plan.blocks >= 1 && plan.blocks <= std::min(blocks_max, cuda::blocks_of(plan.body))));
                CHECK((plan.threads <= cuda::threads_max && plan.threads % 32 == 0 && plan.threads >= ranks));
                CHECK(plan.operation.space == Space::device);
                before = plan;
            }
            CHECK(before.body == cuda::Body::peer_two_shot);
        }
}

TEST_CASE("fused kernels change at the limits of the selector's rows") {
    for (const int ranks : {2, 4, 8, 17, 72})
        for (const Collective collective : {Collective::all_reduce, Collective::all_gather, Collective::broadcast}) {
            INFO(name_of(collective) << " of " << ranks << " ranks");
            for (const FusedRow& row : fused_rows(collective))
                for (const auto type : {weftInt8, weftFloat8e4m3}) {
                    const FusedTechniques techniques{true, true, 1 << 24};
                    Operation operation = operation_of(0);
                    operation.collective = collective;
                    operation.type = type;
                    const size_t limit = most_bytes_of(row, operation, ranks, techniques.packet_bytes);
                    operation.count = limit == SIZE_MAX ? size_t(1) << 40 : limit;
                    if (ranks == 72 && row.one_shot && collective == Collective::all_reduce) CHECK(limit == 3640);
                    if (row.kernel == FusedKernel::packet_two_shot)
                        CHECK(limit == size_t(1) << (type == weftInt8 || ranks > 16 ? 19 : 24));
                    if (collective != Collective::all_reduce) operation.count /= size_t(ranks);
                    CHECK(choose_fused(operation, ranks, techniques, true) == &row);
                    ++operation.count;
                    CHECK((choose_fused(operation, ranks, techniques, true) == &row) == (limit == SIZE_MAX));
                }
        }
    // One-shot alone serves long all-reduces only without step algorithms.
    const Operation large = operation_of(1 << 24);
    CHECK(choose_fused(large, 4, {true, false}, true) == nullptr);
    CHECK(choose_fused(large, 4, {true, false}, false) == &fused_rows(Collective::all_reduce)[0]);
    CHECK(choose_fused(large, 4, {false, false}, false) == nullptr);
}

TEST_CASE("floating-point numbers go by packets up to the setting, or 1 MiB with few blocks") {
    const auto body_of = [](size_t bytes, const DeviceLayout& layout) {
        Operation operation = operation_of(bytes);
        operation.type = weftFloat8e4m3;
        return plan_on_device(operation, layout)->body;
    };
    DeviceLayout layout{8, 32, ""};
    CHECK(body_of(32 << 20, layout) == cuda::Body::packet_two_shot);
    CHECK(body_of((32 << 20) + 1, layout) == cuda::Body::peer_two_shot);
    layout.block_rules.packet_bytes = 2 << 20;
    CHECK(body_of(2 << 20, layout) == cuda::Body::packet_two_shot);
    CHECK(body_of((2 << 20) + 1, layout) == cuda::Body::peer_two_shot);
    layout.blocks_max = 31;
    CHECK(body_of(1 << 20, layout) == cuda::Body::packet_two_shot);
    CHECK(body_of((1 << 20) + 1, layout) == cuda::Body::peer_two_shot);
    layout.block_rules.packet_bytes = 0;
    CHECK(body_of(64 << 10, layout) == cuda::Body::peer_two_shot);
}

TEST_CASE("plans of different kernels and grids have different fingerprints, and none is the host's") {
    const DeviceLayout layout{4, 64, ""}, smaller{4, 8, ""}, one_shot = fused_layout(4, 64, "one_shot");
    DeviceLayout narrow = layout;
    narrow.threads = 128;
    const size_t bytes = 400'000;
    CHECK(plan_of(bytes, narrow).threads == 128);
    CHECK(plan_of(bytes, layout).fingerprint() != plan_of(bytes, narrow).fingerprint());
    CHECK(plan_of(bytes, layout).fingerprint() != plan_of(bytes, smaller).fingerprint());
    CHECK(plan_of(bytes, layout).fingerprint() != plan_of(bytes, one_shot).fingerprint());
    Operation host = plan_of(bytes, layout).operation;
    host.space = Space::host;
    CHECK(plan_of(bytes, layout).fingerprint() != fingerprint(host));
}

TEST_CASE("a kernel that some device cannot run is not chosen: steps serve, for every collective and size") {
    const uint32_t without = ~uint32_t(cuda::peer_memory);
    CHECK((cuda::needs(cuda::Body::peer_two_shot) & ~without) == cuda::peer_memory);
    CHECK(std::string(cuda::name_of_lacking(cuda::peer_memory)) == "loads and stores in other ranks' memory");
    CHECK(cuda::name_of_lacking(0).empty());
    const DeviceLayout layout = layout_of(Layout{4}, 64, "", 0, without);
    for (int number = int(Collective::all_reduce); number <= int(Collective::scatter); ++number)
        for (size_t bytes = 1; bytes < size_t(1) << 32; bytes *= 16) {
            Operation operation = operation_of(bytes);
            operation.collective = Collective(number);
            const auto plan = plan_on_device(operation, layout);
            INFO(name_of(Collective(number)) << " of " << bytes << ": " << plan.status().sentence());
            REQUIRE(plan.ok());
            CHECK(plan->body == cuda::Body::steps);
        }
}

TEST_CASE("the switch serves sums of some types and copies to all, from a size on") {
    DeviceLayout layout = layout_of(8, 64, "");
    const auto body_of = [&](Collective collective, weftDataType_t type, int op, size_t bytes) {
        Operation operation = operation_of(0);
        operation.collective = collective;
        operation.type = uint8_t(type);
        operation.op = uint8_t(op);
        operation.count = bytes / datatype_bytes[type];
        return plan_on_device(operation, layout)->body;
    };
    const auto switched = [&](auto... arguments) { return body_of(arguments...) == cuda::Body::multicast; };
    CHECK_FALSE(switched(Collective::all_reduce, weftFloat32, weftSum, 1 << 24));
    layout.support.multicast = multicast_if_faster;
    CHECK(switched(Collective::all_reduce, weftFloat32, weftSum, multicast_limits.bytes));
    CHECK_FALSE(switched(Collective::all_reduce, weftFloat32, weftSum, multicast_limits.bytes - 4));
    for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather, Collective::broadcast})
        CHECK_FALSE(switched(collective, weftFloat32, weftSum, 1 << 24));
    layout.support.multicast = multicast_always;
    CHECK_FALSE(switched(Collective::all_reduce, weftFloat32, weftSum, 0));
    for (const Collective collective : {Collective::all_gather, Collective::broadcast})
        for (int type = 0; type < weftNumTypes; ++type) CHECK(switched(collective, weftDataType_t(type), weftSum, 8));
    for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter})
        for (int type = 0; type < weftNumTypes; ++type)
            for (int op = 0; op <= weftNumOps; ++op)
                CHECK(switched(collective, weftDataType_t(type), op, 8) ==
                      cuda::multicast_reduces(weftDataType_t(type), weftRedOp_t(op)));
    const auto reduced = [&](weftDataType_t type, int op) {
        return switched(Collective::all_reduce, type, op, 1 << 24);
    };
    for (const auto& [type, op] : {std::pair(weftFloat32, weftSum),
                                   {weftFloat64, weftSum},
                                   {weftInt64, weftMax},
                                   {weftUint32, weftMin},
                                   {weftUint8, weftBxor}})
        CHECK(reduced(type, op));
    for (const auto& [type, op] : {std::pair(weftFloat32, weftMax),
                                   {weftFloat64, weftMin},
                                   {weftInt8, weftSum},
                                   {weftUint8, weftMax},
                                   {weftInt32, weftProd},
                                   {weftFloat32, weftAvg}})
        CHECK_FALSE(reduced(type, op));
    // Results with other rounding, or without NaNs, only if they are asked for.
    const std::pair<weftDataType_t, weftRedOp_t> inexact[] = {
        {weftFloat8e4m3, weftSum}, {weftFloat8e5m2, weftMax}, {weftFloat16, weftMin}, {weftBfloat16, weftMax}};
    for (const auto& [type, op] : inexact) CHECK(reduced(type, op));
    layout.support.multicast = multicast_if_faster;
    for (const auto& [type, op] : inexact) CHECK_FALSE(reduced(type, op));
    CHECK(reduced(weftInt32, weftMax));
    layout.support.multicast = multicast_always;
    layout.support.capabilities &= ~uint32_t(cuda::switch_fp8);
    CHECK_FALSE(reduced(weftFloat8e4m3, weftSum));
    CHECK(reduced(weftFloat16, weftMin));
    for (const Collective collective :
         {Collective::reduce, Collective::all_to_all, Collective::gather, Collective::scatter})
        CHECK_FALSE(switched(collective, weftFloat32, weftSum, 1 << 24));
    // Algorithms over connections, if they are asked for, do not give way.
    layout = layout_of(8, 64, "ring");
    layout.support.multicast = multicast_always;
    CHECK_FALSE(switched(Collective::all_reduce, weftFloat32, weftSum, 1 << 24));
}

TEST_CASE("WEFT_ALGO decides between one step and two") {
    for (const size_t bytes : {size_t(8), size_t(100'000), size_t(10'000'000)}) {
        CHECK(plan_of(bytes, fused_layout(4, 64, "one_shot")).body == cuda::Body::packet_one_shot);
        CHECK(plan_of(bytes, fused_layout(4, 64, "^one_shot")).body ==
              (bytes > 1'000'000 ? cuda::Body::peer_two_shot : cuda::Body::packet_two_shot));
    }
    // Two levels need several hosts.
    const auto none = plan_on_device(operation_of(8), layout_of(4, 64, "two_level_ring"));
    CHECK_ERROR(none, "gpu.not-served");
    CHECK_THAT(none.status().sentence(), Catch::Contains("WEFT_ALGO is two_level_ring"));
}

TEST_CASE("other algorithms run by steps, where no fused kernel is allowed or serves") {
    for (const char* algo : {"ring", "double_binary_tree", "halving_doubling", "recursive_doubling", "all_pairs"})
        for (const int ranks : {1, 2, 3, 7, 16}) {
            const DeviceLayout layout = layout_of(ranks, 64, algo);
            for (size_t bytes = 0; bytes < size_t(1) << 34; bytes = bytes * 3 + 1) {
                const DevicePlan plan = plan_of(bytes, layout);
                CHECK(plan.body == cuda::Body::steps);
                CHECK(plan.algorithm == algo);
                CHECK((plan.blocks >= 1 && plan.blocks <= 64));
                CHECK((plan.tile_bytes >= 64 && plan.tile_bytes % 64 == 0));
                CHECK(plan.tile_bytes <= layout.steps[0].most_tile_bytes);
            }
        }
    // A fused kernel that is allowed keeps its own, all of them if it takes messages of every size.
    const DeviceLayout mixed = layout_of(8, 64, "^two_shot");
    CHECK(plan_of(8, mixed).body == cuda::Body::packet_one_shot);
    CHECK(plan_of(1 << 20, mixed).body == cuda::Body::steps);
    CHECK(layout_of(8, 64, "").steps.empty());
    CHECK(plan_of(1 << 30, layout_of(8, 64, "ring,two_shot")).body == cuda::Body::peer_two_shot);
    // Of many ranks: rings for long messages.
    const DeviceLayout many = layout_of(40, 64, "^one_shot,^two_shot");
    CHECK(plan_of(8, many).algorithm != "ring");
    CHECK(plan_of(size_t(1) << 30, many).algorithm == "ring");
}

TEST_CASE("in deterministic mode fused kernels serve, and steps, which sum as they come, say why they do not") {
    const StepAlgorithms steps = step_algorithms({.rows = registry::algorithms(),
                                                  .own = [](Collective) { return true; },
                                                  .blocks_max = 64,
                                                  .deterministic = true},
                                                 {17}, 0);
    for (const StepAlgorithm& row : steps.rows) CHECK(!facts_of(row.algorithm->collective).reduces);
    CHECK_THAT(steps.excluded.at(Collective::all_reduce),
               Catch::Contains("ring: does not combine in rank order, as WEFT_DETERMINISTIC wants"));
    DeviceLayout layout = layout_of(73, 64, "");
    layout.steps = {};
    layout.excluded = steps.excluded;
    const auto none = plan_on_device(operation_of(8), layout);
    CHECK_ERROR(none, "gpu.not-served");
    CHECK_THAT(none.status().sentence(), Catch::Contains("does not combine in rank order"));
}

TEST_CASE("the number of rings fits the device, and algorithms that need more blocks are refused with the reason") {
    CHECK(plan_of(1 << 20, layout_of(4, 64, "ring")).blocks > 8);
    CHECK(plan_of(1 << 20, layout_of(4, 5, "ring")).blocks == 5);
    CHECK(plan_of(1 << 20, layout_of(4, 64, "ring", 20)).blocks == 20);
    CHECK(plan_of(1 << 20, layout_of(4, 7, "ring", 20)).blocks == 7);
    const auto none = plan_on_device(operation_of(8), layout_of(16, 2, "double_binary_tree"));
    CHECK_ERROR(none, "gpu.not-served");
    CHECK_THAT(none.status().sentence(), Catch::Contains("double_binary_tree: ") && Catch::Contains("room for 2"));
}

TEST_CASE("calls choose among the communicator's algorithms, and others are refused with the reason") {
    const auto preferring = [](const DeviceLayout& made, const std::string& algo, int channels = 0) {
        return layout_preferring(made, {algo, channels}, Layout{made.ranks}, registry::algorithms());
    };
    const auto refusal = [](const DeviceLayout& layout) {
        const auto none = plan_on_device(operation_of(1 << 20), layout);
        return none ? "served" : none.status().sentence();
    };
    // All are there where steps alone serve; each says why it is not.
    const DeviceLayout many = layout_of(20, 64, "^one_shot,^two_shot");
    for (const char* name : {"ring", "double_binary_tree"})
        CHECK(plan_of(1 << 20, preferring(many, name)).algorithm == name);
    CHECK(plan_of(1 << 20, preferring(many, "ring", 16)).algorithm == "ring");
    CHECK_THAT(refusal(preferring(many, "ring", 3)),
               Catch::Contains("ring: 16 channels were made with the communicator"));
    CHECK(plan_of(1 << 20, preferring(many, "double_binary_tree", 3)).algorithm == "double_binary_tree");
    CHECK_THAT(refusal(preferring(layout_of(73, 64, ""), "one_shot")),
               Catch::Contains("algo of the call's config is one_shot: "));
    CHECK_THAT(refusal(preferring(layout_of(16, 2, "ring,double_binary_tree"), "double_binary_tree")),
               Catch::Contains("double_binary_tree: ") && Catch::Contains("room for 2"));
    // Named, they are made, and taken only if they are asked for.
    const DeviceLayout both = layout_of(4, 64, "one_shot,two_shot,ring");
    CHECK(plan_of(1 << 20, both).body == cuda::Body::peer_two_shot);
    CHECK(plan_of(1 << 20, preferring(both, "ring")).algorithm == "ring");
    CHECK(plan_of(1 << 20, preferring(layout_of(4, 64, "ring"), "two_shot")).body == cuda::Body::peer_two_shot);
    CHECK_THAT(refusal(preferring(layout_of(4, 64, ""), "ring")),
               Catch::Contains("; ring: its connections are made with the communicator"));
}

TEST_CASE("the communicator's and the call's limits of blocks combine, within the room of the devices") {
    const auto limits = [](BlockLimits asked, int room, BlockLimits call) {
        return BlockRules{room, asked}.limits_for(call);
    };
    CHECK(limits({}, 64, {}) == BlockLimits{1, 32});
    CHECK(limits({}, 16, {}) == BlockLimits{1, 16});
    CHECK(limits({40, 0}, 64, {}) == BlockLimits{40, 40});
    CHECK(limits({40, 0}, 20, {}) == BlockLimits{20, 20});
    CHECK(limits({4, 8}, 64, {}) == BlockLimits{4, 8});
    CHECK(limits({4, 8}, 64, {2, 0}) == BlockLimits{2, 8});
    CHECK(limits({4, 8}, 64, {0, 60}) == BlockLimits{4, 60});
    CHECK(limits({4, 8}, 64, {9, 0}) == BlockLimits{8, 8});
    const auto preferring = [](int least, int most) {
        const DeviceLayout usual{4, 32, ""};
        return layout_preferring(usual, {"", 0, {least, most}}, Layout{4}, registry::algorithms());
    };
    CHECK(plan_of(8, preferring(3, 0)).blocks == 3);
    CHECK(plan_of(8, preferring(64, 0)).blocks == cuda::packet_blocks);
    CHECK(plan_of(64 << 20, preferring(3, 0)).blocks == 32);
    CHECK(plan_of(64 << 20, preferring(0, 2)).blocks == 2);
    CHECK(plan_of(64 << 20, preferring(64, 0)).blocks == 64);
    CHECK(plan_of(8, preferring(3, 0)).operation.choice != plan_of(8, preferring(4, 0)).operation.choice);
}

TEST_CASE("every collective has a kernel of its own kind, short and long, on one host and on several") {
    for (const Collective collective : all_collectives) {
        if (!has_device_form(collective)) continue;
        INFO(name_of(collective));
        const CollectiveFacts facts = facts_of(collective);
        Operation call = operation_of(8);
        call.collective = collective;
        call.root = facts.rooted ? 3 : 0;
        const auto plan = [&](size_t bytes, const DeviceLayout& layout) {
            call.count = bytes;
            auto made = plan_on_device(call, layout);
            REQUIRE(made.ok());
            CHECK((made->blocks >= 1 && made->blocks <= layout.blocks_max));
            return *made;
        };
        const DeviceLayout usual = layout_of(4, 64, "");
        CHECK(usual.steps.empty());
        CHECK(plan(8, usual).body == cuda::Body::packet_one_shot);
        CHECK(plan(16 << 20, usual).body == (facts.parted ? cuda::Body::peer_one_shot : cuda::Body::peer_two_shot));
        // A list for other collectives does not bind this one.
        const char* other = collective == Collective::all_reduce ? "linear" : "recursive_doubling";
        CHECK(plan(8, layout_of(4, 64, other)).body == cuda::Body::packet_one_shot);
        // Without fused bodies, with more ranks than they know, and on several hosts; each root has a program.
        for (const DeviceLayout& layout :
             {layout_of(4, 64, "^one_shot,^two_shot"), layout_of(73, 64, ""), layout_of({4, 0, {0, 0, 1, 1}}, 64, "")})
            for (const size_t bytes : {size_t(0), size_t(1000), size_t(4) << 20}) {
                const DevicePlan made = plan(bytes, layout);
                CHECK(made.body == cuda::Body::steps);
                const StepAlgorithm& steps = layout.steps[size_t(made.steps)];
                CHECK(steps.algorithm->collective == collective);
                CHECK(made.tile_bytes <= steps.most_tile_bytes);
                CHECK((steps.program(3) - steps.program(0)) == (facts.rooted ? 3 : 0));
            }
    }
    // A call that one kernel cannot hold is refused with the reason.
    Operation call = operation_of(8);
    call.collective = Collective::all_to_all;
    const auto none = plan_on_device(call, layout_of(20, 8, "all_pairs"));
    CHECK_ERROR(none, "gpu.not-served");
    CHECK_THAT(none.status().sentence(), Catch::Contains("room for 8"));
}

TEST_CASE("plans of steps differ by algorithm, grid and tile, and ranks that disagree notice") {
    const size_t bytes = 400'000;
    const DeviceLayout ring = layout_of(4, 64, "ring"), narrow = layout_of(4, 8, "ring"),
                       tree = layout_of(4, 64, "double_binary_tree");
    DeviceLayout small = ring;
    small.tile_bytes = 4096;
    std::set<uint32_t> fingerprints;
    for (const DeviceLayout* layout : {&ring, &narrow, &tree, static_cast<const DeviceLayout*>(&small)})
        fingerprints.insert(plan_of(bytes, *layout).fingerprint());
    CHECK(fingerprints.size() == 4);
    CHECK(plan_of(bytes, small).tile_bytes == 4096);
}

TEST_CASE("between hosts steps alone serve, short messages in few rounds and long ones in shares") {
    for (const auto& hosts : {std::vector{0, 1}, {0, 1, 2, 3}, {0, 0, 1, 1}, {0, 1, 0, 1, 2, 2}}) {
        const int ranks = int(hosts.size());
        Layout seen{ranks, 0, std::vector<int32_t>(hosts.begin(), hosts.end())};
        const DeviceLayout layout = layout_of(seen, 64, "");
        for (const Collective collective : all_collectives)
            if (has_device_form(collective)) CHECK(needs_steps(layout, collective));
        CHECK_THAT(layout.excluded.at(Collective::all_reduce), Catch::Contains("two_shot"));
        // Each rank sends the least possible, or its blocks work side by side, each on a tile of its own; or everything
        // in the fewest rounds.
        const std::set<std::string> least{"ring",      "halving_doubling",     "all_pairs", "double_binary_tree",
                                          "rail_tree", "rail_halving_doubling"};
        CHECK(least.count(plan_of(64 << 20, layout).algorithm) == 1);
        // Where the ranks are no power of two, fewer rounds between hosts count.
        const std::string shortest = plan_of(8, layout).algorithm;
        CAPTURE(ranks, shortest);
        CHECK((shortest == "recursive_doubling" || (ranks == 6 && shortest == "rail_doubling")));
        for (const size_t bytes : {size_t(0), size_t(1), size_t(1) << 14, size_t(1) << 24})
            CHECK(plan_of(bytes, layout).body == cuda::Body::steps);
    }
}

TEST_CASE("kernels of ranks that share a device find room on it together") {
    CHECK(blocks_together(std::vector{facts_of(1, 528), facts_of(2, 528)}) == cuda::blocks_max);
    CHECK(blocks_together(std::vector{facts_of(1, 64), facts_of(1, 64), facts_of(2, 64)}) == 32);
    // The weakest device counts, wherever it is.
    CHECK(blocks_together(std::vector{facts_of(1, 100), facts_of(2, 12)}) == 12);
    CHECK(blocks_together(std::vector{facts_of(1, 2), facts_of(1, 2), facts_of(1, 2)}) == 0);
}

TEST_CASE("a user's algorithm serves the messages that it is for, and takes nothing away from others") {
    UserAlgorithm mine{"mine", "mine.txt", {}};
    for (int rank = 0; rank < 4; ++rank) {
        mine.schedules.push_back(registry::find_algorithm("ring")->build({.ranks = 4, .rank = rank}, {}));
        mine.schedules.back().least_bytes = 1000;
        mine.schedules.back().most_bytes = 2000;
    }
    std::vector<Algorithm> rows = {{"mine", Collective::all_reduce, nullptr, nullptr, "", nullptr, nullptr, &mine}};
    for (const char* algo : {"", "one_shot,mine"}) {
        StepAlgorithms steps = step_algorithms({.rows = rows,
                                                .own = [](Collective) { return false; },
                                                .rules = AlgoRules(algo, Layout{4}, rows),
                                                .blocks_max = 64},
                                               {4}, 0);
        REQUIRE(steps.rows.size() == 1);
        DeviceLayout without{4, 64, algo}, with = without;
        with.steps = std::move(steps.rows);
        for (const size_t bytes : {1000, 1500, 2000}) {
            CHECK(plan_of(bytes, with).body == cuda::Body::steps);
            CHECK(plan_of(bytes, with).algorithm == "mine");
        }
        for (const size_t bytes : {0, 999, 2001, 4 << 20})
            CHECK(plan_of(bytes, with).body == plan_of(bytes, without).body);
    }
}

TEST_CASE("a user's algorithm that asks for more slots than connections have is left out, with the reason") {
    for (const int depth : {16, 17}) {
        UserAlgorithm mine{"mine", "mine.txt", {}};
        for (int rank = 0; rank < 4; ++rank) {
            mine.schedules.push_back(registry::find_algorithm("ring")->build({.ranks = 4, .rank = rank}, {}));
            mine.schedules.back().fifo_depth = depth;
        }
        std::vector<Algorithm> rows = {{"mine", Collective::all_reduce, nullptr, nullptr, "", nullptr, nullptr, &mine}};
        StepAlgorithms steps =
            step_algorithms({.rows = rows, .own = [](Collective) { return false; }, .blocks_max = 64}, {4}, 0);
        CHECK(steps.rows.size() == (depth == 16 ? 1 : 0));
        if (depth == 17)
            CHECK(steps.excluded[Collective::all_reduce] ==
                  "mine: a FIFO depth of 17, and a kernel's connections have at most 16 slots");
    }
}

}  // namespace weft::internal::test
