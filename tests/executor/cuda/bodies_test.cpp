// bodies_test.cpp: the kernels' bodies, run by threads, against the interpreter: bit for bit, for every type and
// reduction, at any address, in and out of place.
#include "src/gpu/kernels/kernel_barrier.hpp"
#include "tests/executor/cuda/virtual_ranks.hpp"
#include "tests/executor/wild_inputs.hpp"

namespace weft::internal::test {
namespace {

using cuda::Body;

const Launch launches[] = {
    {Body::packet_one_shot, 1},        {Body::packet_one_shot, 3},        {Body::packet_two_shot, 1},
    {Body::packet_two_shot, 3},        {Body::peer_two_shot, 1},          {Body::peer_two_shot, 3},
    {Body::peer_two_shot, 1, true},    {Body::peer_two_shot, 2, true},    {Body::peer_two_shot, 2, true, 16},
    {Body::peer_two_shot, 3, true, 2}, {Body::peer_two_shot, 2, true, -1}};

// Of all ranks at once, in rank order, for any kernel.
std::vector<Bytes> in_rank_order(Call call) {
    call.algorithm = registry::find_algorithm("one_shot");
    call.tile_bytes = std::max<size_t>(64, call.bytes());
    return expected(call);
}

// A rank does not know its peers' scalars.
bool can_run(const Call& call, const Launch& launch) {
    return call.op != premul || launch.body != Body::peer_two_shot || launch.staged;
}

void check(VirtualRanks& ranks, const Call& call, const Launch& launch) {
    if (!can_run(call, launch)) return;
    const auto got = ranks.run(call, launch);
    if (const auto where = difference(call, got, in_rank_order(call))) FAIL_CHECK(*where << ": " << text(call, launch));
    for (int rank = 1; rank < ranks.ranks(); ++rank)
        if (got[size_t(rank)] != got[0]) FAIL_CHECK("rank " << rank << " has other bits: " << text(call, launch));
}

// One of `one_in` ranks starts late.
void check_with_late_ranks(VirtualRanks& ranks, const Call& call, const Launch& launch, std::mt19937& random,
                           unsigned one_in) {
    auto parts = ranks.prepare(call, launch);
    for (auto& part : parts) {
        if (random() % one_in == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
        part->start();
    }
    std::vector<Bytes> got;
    for (auto& part : parts) {
        part->join();
        got.push_back(part->result());
    }
    if (const auto where = difference(call, got, in_rank_order(call))) FAIL_CHECK(*where << ": " << text(call, launch));
}

Call call_of(int type, int op) {
    Call call;
    call.algorithm = registry::find_algorithm("one_shot");
    call.type = weftDataType_t(type);
    call.op = op;
    return call;
}

}  // namespace

TEST_CASE("every body, type, reduction and number of ranks gives the bits of rank order", "[cuda]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs inputs(random);
    for (const int n : {1, 2, 3, 4, 5, 8}) {
        if (skips_ranks(n, 3, random)) continue;
        VirtualRanks ranks(n);
        for (const Launch& launch : launches)
            for (int type = 0; type < weftNumTypes; ++type)
                for (const int op : reductions_of(type)) {
                    if (small() && random() % 6 != 0) continue;
                    Call call = call_of(type, op);
                    call.tile_bytes = 64 * (1 + random() % 20);
                    inputs.fill(call, n, random() % 700, random);
                    call.in_place = random_flags(n, random);
                    check(ranks, call, launch);
                }
    }
}

TEST_CASE("bodies work at any address and write nothing else", "[cuda]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs inputs(random);
    const int n = 3;
    VirtualRanks ranks(n);
    for (const Launch& launch : launches)
        for (const int type : {weftUint8, weftBfloat16, weftFloat32, weftFloat64})
            for (const size_t send_offset : {0, 1, 2, 4, 8, 12, 16})
                for (const size_t receive_offset : {0, 1, 4, 8, 15}) {
                    if (small() && random() % 16 != 0) continue;
                    Call call = call_of(type, weftSum);
                    call.tile_bytes = 256;
                    inputs.fill(call, n, 1 + random() % 200, random);
                    call.in_place = random_flags(n, random);
                    call.send_offset = send_offset;
                    call.receive_offset = receive_offset;
                    check(ranks, call, launch);
                }
}

TEST_CASE("messages of no, one and many rounds of packets come out alike", "[cuda]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs inputs(random);
    for (const int n : {3, 17}) {
        VirtualRanks ranks(n);
        for (const Launch& launch : launches)
            for (const size_t count : {0, 1, 2, 511, 512, 513, 1023, 1024, 1025, 5000, 5999}) {
                if ((small() || n > 3) && random() % (small() && sanitized ? 16 : 4) != 0) continue;
                Call call = call_of(weftFloat64, weftSum);
                call.tile_bytes = 4096;
                inputs.fill(call, n, count, random);
                check(ranks, call, launch);
            }
    }
}

TEST_CASE("packets carry every NaN, also those that stand for a line without data", "[cuda]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs inputs(random);
    const int n = 3;
    VirtualRanks ranks(n);
    for (const Launch& launch : launches)
        for (int type = 0; type < weftNumTypes; ++type)
            for (const int op : {weftSum, weftMax}) {
                Call call = call_of(type, op);
                call.tile_bytes = 256;
                inputs.fill(call, n, 96, random);
                const size_t third = call.inputs[0].size() / 3;
                for (Bytes& input : call.inputs) {
                    std::fill_n(input.begin(), third, std::byte(0xff));
                    std::fill_n(input.begin() + ptrdiff_t(third), third, std::byte(0));
                }
                check(ranks, call, launch);
            }
}

TEST_CASE("long messages in overlapping rounds of packets follow each other, with others between", "[cuda]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs inputs(random);
    for (const int n : {2, 3}) {
        VirtualRanks ranks(n);
        for (int i = 0; i < (small() ? 6 : 40); ++i) {
            const Launch launch{random() % 4 == 0 ? Body::packet_one_shot : Body::packet_two_shot,
                                1 + int(random() % 2)};
            Call call = call_of(random() % 4 == 0 ? weftInt32 : weftFloat32, weftSum);
            call.tile_bytes = 4096;
            inputs.fill(call, n, random() % (random() % 2 == 0 ? 60'000 : 6'000), random);
            call.in_place = random_flags(n, random);
            check_with_late_ranks(ranks, call, launch, random, 4);
        }
    }
}

TEST_CASE("many calls of every kind and size in a row, some ranks late, end well", "[cuda]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs inputs(random);
    for (const int n : {2, 4}) {
        VirtualRanks ranks(n);
        for (int i = 0; i < (small() ? sanitized ? 20 : 60 : 1500); ++i) {
            const Launch& launch = launches[random() % std::size(launches)];
            const int type = int(random() % weftNumTypes);
            Call call = call_of(type, any_reduction_of(type, random));
            call.tile_bytes = 64 * (1 + random() % 8);
            inputs.fill(call, n, random() % 8 == 0 ? random() % 3000 : random() % 100, random);
            call.in_place = random_flags(n, random);
            if (!can_run(call, launch)) continue;
            check_with_late_ranks(ranks, call, launch, random, 32);
        }
    }
}

TEST_CASE("ranks go on when their epochs are used up and begin again", "[cuda]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs inputs(random);
    for (const Launch& launch : launches) {
        const int n = random() % 8 == 0 ? 17 : 3;
        VirtualRanks ranks(n);
        ranks.go_to(cuda::KernelBarrier::last_epoch - 5);
        for (int i = 0; i < 12; ++i) {
            Call call = call_of(i % 2 == 0 ? weftInt32 : weftFloat32, weftSum);
            call.tile_bytes = 1024;
            inputs.fill(call, n, 300, random);
            check(ranks, call, launch);
        }
        CHECK(ranks.epoch(0) < 100);
    }
}

TEST_CASE("a local sum gives the bits of rank order", "[cuda]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs inputs(random);
    for (const int n : {1, 2, 3, 8, 16, 24}) {
        VirtualRanks ranks(n);
        for (int type = 0; type < weftNumTypes; ++type)
            for (int op = 0; op < weftNumOps; ++op) {
                if (!serves(weftRedOp_t(op), weftDataType_t(type)) || !cuda::adds(weftRedOp_t(op))) continue;
                Call call = call_of(type, op);
                inputs.fill(call, n, random() % 500, random);
                const Launch launch{Body::local_reduce, 1 + int(random() % 3)};
                auto parts = ranks.prepare(call, launch);
                for (int rank = 0; rank < n; ++rank)
                    parts[0]->arguments.inputs[rank] = parts[size_t(rank)]->arguments.send;
                parts[0]->start();
                parts[0]->join();
                CHECK(parts[0]->intact());
                if (const auto where = difference(call, {parts[0]->result()}, {in_rank_order(call)[0]}))
                    FAIL_CHECK(*where << ": " << text(call, launch));
            }
    }
}

}  // namespace weft::internal::test
