// gpu_test.cpp: the kernels on a GPU, bit for bit against the interpreter. The shipping ones have a stream for each
// rank ([streams]), the bodies run as virtual ranks in one grid ([grid]). A sanitizer runs kernels one after the other,
// so under it only [grid] cases with [sanitizer] run (tools/gpu-check.sh).
#include "src/drivers/cuda/multicast.hpp"
#include "tests/executor/wild_inputs.hpp"
#include "tests/gpu/device_ranks.hpp"
#include "tests/patience.hpp"

namespace weft::internal::test {
namespace {

using cuda::Body;
using cuda::KernelFailure;

const DeviceLaunch launches[] = {{Body::packet_one_shot, 1, 128},
                                 {Body::packet_one_shot, 4, 512},
                                 {Body::packet_two_shot, 1, 256},
                                 {Body::packet_two_shot, 4, 512},
                                 {Body::peer_two_shot, 1, 256},
                                 {Body::peer_two_shot, 4, 512},
                                 {Body::peer_two_shot, 1, 256, true},
                                 {Body::peer_two_shot, 4, 512, true},
                                 {Body::peer_two_shot, 4, 512, true, Placing::streams, true}};

DeviceLaunch placed(DeviceLaunch launch, Placing placing) {
    launch.placing = placing;
    return launch;
}
std::vector<Bytes> in_rank_order(Call call) {
    call.algorithm = registry::find_algorithm("one_shot", call.collective());
    call.tile_bytes = std::max<size_t>(64, call.bytes());
    return expected(call);
}
Call call_of(int type, int op, Collective collective = Collective::all_reduce) {
    Call call;
    call.algorithm = registry::find_algorithm("one_shot", collective);
    call.type = weftDataType_t(type);
    call.op = op;
    return call;
}
bool by_peers(const DeviceLaunch& launch) {
    return launch.body == Body::peer_two_shot || launch.body == Body::peer_one_shot;
}
// A rank does not know its peers' scalars.
bool can_run(const Call& call, const DeviceLaunch& launch) {
    return call.op != premul || !by_peers(launch) || launch.staged;
}
void check(DeviceRanks& ranks, const Call& call, const DeviceLaunch& launch, const std::vector<Bytes>& right) {
    if (const auto where = difference(call, ranks.run(call, launch), right))
        FAIL_CHECK(*where << ": " << name_of(launch.body) << ", " << launch.blocks << " blocks: " << call.text());
}

constexpr size_t most_bytes = 64 << 10;  // of a buffer

constexpr Collective others[] = {Collective::broadcast,      Collective::reduce,     Collective::all_gather,
                                 Collective::reduce_scatter, Collective::all_to_all, Collective::gather,
                                 Collective::scatter};
// By packets, and by the body for long messages: from buffer to buffer, through staging memory, and as ranks offer it.
std::vector<DeviceLaunch> launches_of(Collective collective) {
    const Body peer = facts_of(collective).parted ? Body::peer_one_shot : Body::peer_two_shot;
    return {{Body::packet_one_shot, 1, 128},
            {Body::packet_one_shot, 4, 512},
            {peer, 1, 256},
            {peer, 4, 512},
            {peer, 4, 512, true},
            {peer, 4, 512, true, Placing::streams, true}};
}
// Any of that collective: root, sizes, ranks in place.
void draw(Call& call, int n, const WildInputs& inputs, std::mt19937& random) {
    const CollectiveFacts facts = facts_of(call.collective());
    if (facts.rooted) call.root = int(random() % unsigned(n));
    inputs.fill(call, n, random() % (size_t(4000) / size_t(parts_of(call.collective(), n))), random);
    if (!facts.transposes) call.in_place = random_flags(n, random);
}

void check_steps(Placing placing) {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs inputs(random);
    for (const int n : {2, 3, 4, 8}) {
        DeviceRanks ranks(n, most_bytes);
        for (const char* name : {"ring", "double_binary_tree", "halving_doubling", "recursive_doubling"})
            for (int round = 0; round < (small() ? 2 : 8); ++round) {
                Call call = call_of(virtual_types[random() % 4], weftSum);
                call.algorithm = registry::find_algorithm(name);
                if (call.algorithm->refusal({.ranks = n, .rank = 0})) continue;
                inputs.fill(call, n, random() % 5000, random);
                call.in_place = random_flags(n, random);
                call.tile_bytes = 64 * (1 + random() % 64);
                DeviceLaunch launch{Body::steps, 0, 512};
                check(ranks, call, placed(launch, placing), expected(call));
            }
    }
}

}  // namespace

TEST_CASE("every shipping kernel gives the bits of rank order", "[streams]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs inputs(random);
    for (const int n : {1, 2, 3, 4, 8}) {
        DeviceRanks ranks(n, 64 << 10);
        for (const DeviceLaunch& launch : launches)
            for (int type = 0; type < weftNumTypes; ++type)
                for (const int op : reductions_of(type)) {
                    Call call = call_of(type, op);
                    if (!can_run(call, launch) || (small() && random() % (sanitized ? 24 : 8) != 0)) continue;
                    inputs.fill(call, n, random() % 4000, random);
                    call.in_place = random_flags(n, random);
                    call.send_offset = random() % 2 ? random() % 4 * size_of(call.type) : 0;
                    call.receive_offset = random() % 2 ? random() % 4 * size_of(call.type) : 0;
                    check(ranks, call, launch, in_rank_order(call));
                }
    }
}

TEST_CASE("virtual ranks in one grid give the bits of rank order", "[grid][sanitizer]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs inputs(random);
    for (const int n : {1, 2, 3, 5, 8}) {
        DeviceRanks ranks(n, 64 << 10);
        for (const DeviceLaunch& launch : launches)
            for (const int type : virtual_types)
                for (const int op : {int(weftSum), int(weftAvg), premul}) {
                    Call call = call_of(type, op);
                    if (!can_run(call, launch) || (small() && random() % (sanitized ? 24 : 8) != 0)) continue;
                    inputs.fill(call, n, random() % 4000, random);
                    call.in_place = random_flags(n, random);
                    check(ranks, call, placed(launch, Placing::grid), in_rank_order(call));
                }
    }
}

TEST_CASE("every shipping kernel of other collectives gives the bits of rank order", "[streams]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs inputs(random);
    for (const int n : {1, 2, 3, 4, 8}) {
        DeviceRanks ranks(n, most_bytes);
        for (const Collective collective : others)
            for (const DeviceLaunch& launch : launches_of(collective))
                for (int type = 0; type < weftNumTypes; ++type) {
                    const int op = facts_of(collective).reduces ? any_reduction_of(type, random) : int(weftSum);
                    Call call = call_of(type, op, collective);
                    if (!can_run(call, launch) || (small() && random() % (sanitized ? 24 : 8) != 0)) continue;
                    draw(call, n, inputs, random);
                    call.send_offset = random() % 2 ? random() % 4 * size_of(call.type) : 0;
                    call.receive_offset = random() % 2 ? random() % 4 * size_of(call.type) : 0;
                    check(ranks, call, launch, in_rank_order(call));
                }
    }
}

TEST_CASE("other collectives of virtual ranks in one grid give the bits of rank order", "[grid][sanitizer]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs inputs(random);
    for (const int n : {1, 2, 3, 5, 8}) {
        DeviceRanks ranks(n, most_bytes);
        for (const Collective collective : others)
            for (const DeviceLaunch& launch : launches_of(collective))
                for (const int type : virtual_types) {
                    const int sums[] = {weftSum, weftAvg, premul};
                    const int op = facts_of(collective).reduces ? sums[random() % 3] : int(weftSum);
                    Call call = call_of(type, op, collective);
                    if (!can_run(call, launch) || (small() && random() % 4 != 0)) continue;
                    draw(call, n, inputs, random);
                    check(ranks, call, placed(launch, Placing::grid), in_rank_order(call));
                }
    }
}

TEST_CASE("schedules on the device's step machine leave the interpreter's bits", "[streams]") {
    check_steps(Placing::streams);
}
TEST_CASE("schedules of virtual ranks in one grid leave the interpreter's bits", "[grid][sanitizer]") {
    check_steps(Placing::grid);
}

TEST_CASE("every pattern of a small float is widened and rounded as the CPU does it", "[streams]") {
    for (const int type : {weftFloat16, weftBfloat16, weftFloat8e4m3, weftFloat8e5m2})
        for (const int op : {weftSum, weftProd, weftMax}) {
            // Each with each, as far as a message of 256 KB goes.
            Call call = call_of(type, op);
            const size_t size = size_of(call.type);
            Bytes left, right;
            for (unsigned i = 0; i < 65536; ++i) {
                const unsigned first = size == 1 ? i & 255 : i, second = size == 1 ? i >> 8 : i * 40503u >> 3;
                for (size_t byte = 0; byte < size; ++byte) {
                    left.push_back(std::byte(first >> 8 * byte));
                    right.push_back(std::byte(second >> 8 * byte));
                }
            }
            call.inputs = {left, right};
            DeviceRanks ranks(2, left.size());
            check(ranks, call, {Body::peer_two_shot, 8, 512}, in_rank_order(call));
        }
}

// Twenty of each, back to back: any body, any number of ranks, sums, averages and scaled sums.
TEST_CASE("a hundred thousand calls of five thousand random kinds in a row", "[grid]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs inputs(random);
    std::map<int, DeviceRanks> all;
    for (const int n : {2, 3, 4, 8}) all.try_emplace(n, n, most_bytes);
    for (int kind = 0; kind < (small() ? 40 : 5000); ++kind) {
        auto& [n, ranks] = *std::next(all.begin(), int(random() % all.size()));
        const Collective collective = random() % 2 ? Collective::all_reduce : others[random() % std::size(others)];
        const int sums[] = {weftSum, weftAvg, premul};
        const int op = facts_of(collective).reduces ? sums[random() % 3] : int(weftSum);
        Call call = call_of(virtual_types[random() % 4], op, collective);
        const auto of_other = launches_of(collective);
        DeviceLaunch launch = collective == Collective::all_reduce ? launches[random() % std::size(launches)]
                                                                   : of_other[random() % of_other.size()];
        launch.staged |= by_peers(launch) && op == premul;
        draw(call, n, inputs, random);
        call.in_place.clear();  // it would be another call's input the second time
        ranks.bind(call, placed(launch, Placing::grid));
        for (int i = 0; i < 20; ++i) ranks.launch();
        ranks.synchronize();
        REQUIRE(!ranks.failed());
        if (const auto where = difference(call, ranks.results(), in_rank_order(call)))
            FAIL_CHECK(*where << ": " << name_of(launch.body) << ": " << call.text());
    }
}

TEST_CASE("long messages in overlapping rounds of packets give the bits of rank order, back to back",
          "[grid][sanitizer]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs inputs(random);
    for (const int n : {2, 3, 8}) {
        DeviceRanks ranks(n, 1 << 20);
        for (const int type : virtual_types)
            for (const int blocks : {1, 2}) {
                const DeviceLaunch launch{Body::packet_two_shot, blocks, 512};
                Call call = call_of(weftDataType_t(type), weftSum);
                const size_t most = (size_t(1) << 20) / size_of(call.type);
                inputs.fill(call, n, small() ? most / 8 - random() % 99 : most - random() % (most / 2), random);
                ranks.bind(call, placed(launch, Placing::grid));
                for (int i = 0; i < 5; ++i) ranks.launch();
                ranks.synchronize();
                REQUIRE(!ranks.failed());
                if (const auto where = difference(call, ranks.results(), in_rank_order(call)))
                    FAIL_CHECK(*where << ": " << blocks << " blocks: " << call.text());
            }
    }
}

TEST_CASE("a captured launch replays", "[grid]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs inputs(random);
    for (const DeviceLaunch& launch : launches) {
        const int n = 4;
        DeviceRanks ranks(n, 64 << 10);
        Call call = call_of(weftFloat32, weftSum);
        inputs.fill(call, n, 3000, random);
        ranks.bind(call, placed(launch, Placing::grid));
        require(cuda::Graph::begin(Gpu::get().driver, ranks.stream(0).handle()));
        ranks.launch();
        const cuda::Graph graph = require(cuda::Graph::end(Gpu::get().driver, ranks.stream(0).handle()));
        for (int i = 0; i < (small() ? 20 : 1000); ++i) require(graph.launch(ranks.stream(0).handle()));
        ranks.synchronize();
        CHECK(!ranks.failed());
        CHECK(difference(call, ranks.results(), in_rank_order(call)).value_or("no difference") == "no difference");
    }
}

TEST_CASE("at the deadline a kernel leaves and names the rank that is missing", "[streams]") {
    std::mt19937 random(1);
    const WildInputs inputs(random);
    for (const DeviceLaunch& launch : launches)
        CHECK(with_growing_limit(50, [&](int64_t timeout_ms) {
                  DeviceRanks ranks(3, 64 << 10);
                  ranks.set_timeout_ms(timeout_ms);
                  Call call = call_of(weftFloat32, weftSum);
                  inputs.fill(call, 3, 500, random);
                  ranks.bind(call, launch);
                  ranks.launch_rank(0);
                  ranks.launch_rank(1);
                  ranks.synchronize();
                  std::string objection;
                  for (const int rank : {0, 1}) {
                      INFO(name_of(launch.body) << " on rank " << rank);
                      CHECK(ranks.report(rank).failure == KernelFailure::timeout);
                      // A rank that begins after the other gave up misses that rank.
                      if (const int peer = ranks.report(rank).peer; peer != 2)
                          objection += fmt::format("{} on rank {} misses rank {} after {} ms; ", name_of(launch.body),
                                                   rank, peer, timeout_ms);
                  }
                  CHECK(ranks.report(2).failure == KernelFailure::none);
                  return objection;
              }) == "");
}

TEST_CASE("a kernel that waits leaves when it is aborted", "[streams]") {
    std::mt19937 random(1);
    const WildInputs inputs(random);
    for (const DeviceLaunch& launch : launches) {
        DeviceRanks ranks(3, 64 << 10);
        ranks.set_timeout_ms(0);
        Call call = call_of(weftFloat32, weftSum);
        inputs.fill(call, 3, 500, random);
        ranks.bind(call, launch);
        ranks.launch_rank(0);
        ranks.launch_rank(1);
        for (const int rank : {0, 1}) ranks.abort(rank);
        ranks.synchronize();
        for (const int rank : {0, 1}) {
            INFO(name_of(launch.body) << " on rank " << rank);
            CHECK(ranks.report(rank).failure == KernelFailure::aborted);
        }
        CHECK(ranks.report(2).failure == KernelFailure::none);
    }
}

// Drivers may want two devices at least, which the result says. Otherwise the instructions of the kernels run here.
TEST_CASE("kernels run on a multicast object of one device, if the driver makes one", "[streams][multicast]") {
    Gpu& gpu = Gpu::get();
    const auto say = [](const std::string& what) { fmt::print("result: multicast object of one device|{}||\n", what); };
    if (!gpu.properties.multicast) return say("not here: the device has no switch multicast");
    auto bytes = cuda::MulticastObject::size_for(gpu.driver, 1, 8 << 20);
    if (!bytes) return say(bytes.status().sentence());
    auto object = cuda::MulticastObject::create(gpu.context, 1, *bytes);
    if (!object) return say(object.status().sentence());
    require(object->add_device());
    const cuda::VmmMemory memory = require(cuda::VmmMemory::allocate(gpu.context, *bytes));
    cuda::MulticastObject bound = std::move(*object);  // destroyed before the memory
    require(bound.bind(memory));
    require(bound.map());
    const SwitchedStaging staging{static_cast<std::byte*>(memory.data()), reinterpret_cast<std::byte*>(bound.address()),
                                  *bytes};
    std::mt19937 random(seed());
    DeviceRanks ranks(1, 9 << 20);
    for (const Collective collective :
         {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather, Collective::broadcast})
        for (const auto& [type, op] : {std::pair(weftFloat32, weftSum),
                                       {weftFloat16, weftSum},
                                       {weftBfloat16, weftSum},
                                       {weftFloat64, weftSum},
                                       {weftInt32, weftSum},
                                       {weftUint64, weftSum},
                                       {weftFloat16, weftMin},
                                       {weftBfloat16, weftMax},
                                       {weftInt32, weftMin},
                                       {weftUint32, weftMax},
                                       {weftInt64, weftMax},
                                       {weftUint64, weftMin},
                                       {weftInt8, weftBand},
                                       {weftUint32, weftBor},
                                       {weftInt64, weftBxor},
                                       {weftFloat8e4m3, weftSum},
                                       {weftFloat8e5m2, weftMax}})
            for (const size_t count : {size_t(1), size_t(999), size_t(5001)}) {
                if (op != weftSum && !facts_of(collective).reduces) continue;
                // Only the family of compute capability 10 has the instructions.
                const bool fp8 = type == weftFloat8e4m3 || type == weftFloat8e5m2;
                if (fp8 && gpu.properties.sm / 10 != 10) continue;
                Call call = call_of(type, op, collective);
                if (facts_of(collective).rooted) call.root = 0;
                call.inputs.push_back(reference::mild(type, count, random));
                call.send_offset = random() % 4 * size_of(type);
                call.receive_offset = random() % 4 * size_of(type);
                DeviceLaunch launch{Body::multicast, 2, 128};
                launch.switched = &staging;
                check(ranks, call, launch, in_rank_order(call));
            }
    say("made, and the kernels of multicast gave right results on it");
}

TEST_CASE("ranks that call different things both say so", "[streams]") {
    std::mt19937 random(1);
    const WildInputs inputs(random);
    for (const DeviceLaunch& launch : launches) {
        DeviceRanks ranks(2, 64 << 10);
        Call call = call_of(weftFloat32, weftSum);
        inputs.fill(call, 2, 500, random);
        ranks.bind(call, launch);
        ranks.launch_rank(0);
        ranks.change_call(1, 1600);
        ranks.launch_rank(1);
        ranks.synchronize();
        for (const int rank : {0, 1}) {
            CHECK(ranks.report(rank).failure == KernelFailure::mismatch);
            CHECK(ranks.report(rank).peer == 1 - rank);
        }
    }
}

}  // namespace weft::internal::test
