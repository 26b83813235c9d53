// run_test.cpp: the executor against the sequential interpreter, bit for bit: every algorithm, type, reduction and
// small number of ranks. Lengths from nothing to many odd tiles, in and out of place, aligned and not.
#include "src/planning/planner.hpp"
#include "tests/executor/wild_inputs.hpp"

namespace weft::internal::test {
namespace {

struct Variant {
    const char* algorithm;
    int channels;
};
constexpr Variant variants[] = {{"one_shot", 1}, {"two_shot", 1}, {"ring", 1}, {"ring", 2}, {"ring", 3}};
constexpr size_t tile_sizes[] = {64, 192, 448, 1024, 4096};

std::vector<size_t> counts_of(weftDataType_t type, size_t tile_bytes) {
    const size_t tile = tile_bytes / size_of(type);
    return {0, 1, 2, 17, 63, 64, 65, 1000, std::min<size_t>(3000, 5 * tile + tile / 2 + 1)};
}

void check(LocalRanks& ranks, const Call& call, std::mt19937& random) {
    const auto got = ranks.run(call, random);
    if (const auto wrong = difference(call, got, expected(call, ranks.mode(call)))) FAIL_CHECK(*wrong);
}

}  // namespace

TEST_CASE("every algorithm leaves the interpreter's bits for every type, reduction and number of ranks", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    size_t cases = 0;
    for (const int n : {2, 3, 4, 5, 6, 7, 8, 9}) {
        LocalRanks ranks(n);
        for (const Variant& variant : variants)
            for (int type = 0; type < weftNumTypes; ++type)
                for (const int op : reductions_of(type)) {
                    Call call;
                    call.algorithm = registry::find_algorithm(variant.algorithm);
                    call.channels = variant.channels;
                    call.type = weftDataType_t(type);
                    call.op = op;
                    call.tile_bytes = tile_sizes[random() % std::size(tile_sizes)];
                    for (const size_t count : counts_of(call.type, call.tile_bytes)) {
                        if (n > 5 && random() % 4 != 0) continue;
                        if (small() && random() % (sanitized ? 48 : 24) != 0) continue;
                        wild.fill(call, n, count, random);
                        call.pipelined = call.tiles() >= 4 && random() % 4 != 0;
                        call.in_place = random() % 2 ? random_flags(n, random) : std::vector<bool>();
                        call.send_offset = random() % 2 ? 0 : random() % 64;
                        call.receive_offset = random() % 2 ? 0 : random() % 64;
                        call.stores = random() % 4 ? Stores::ordinary : Stores::streaming;
                        check(ranks, call, random);
                        ++cases;
                    }
                }
    }
    CHECK(cases > (!small() ? 15'000 : sanitized ? 150 : 300));
}

TEST_CASE("every length up to two tiles and a bit is right, in and out of place, at every offset", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    for (const int n : {2, 3, 5}) {
        LocalRanks ranks(n);
        for (const char* name : {"one_shot", "two_shot", "ring"})
            for (size_t count = 0; count < 290; count += small() ? 31 : 1) {
                Call call;
                call.algorithm = registry::find_algorithm(name);
                call.type = count % 3 ? weftUint8 : weftFloat16;
                call.op = count % 2 ? weftSum : weftAvg;
                call.tile_bytes = 128;
                call.pipelined = count % 5 == 0 && count >= 256;
                wild.fill(call, n, count, random);
                if (count % 4 == 1) call.in_place = std::vector<bool>(size_t(n), true);
                call.send_offset = count % 65;
                call.receive_offset = (count * 7) % 65;
                check(ranks, call, random);
            }
    }
}

TEST_CASE("sixteen ranks on few cores, a thread each, leave the interpreter's bits", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    LocalRanks ranks(16);
    std::vector<Call> calls;
    for (const Variant& variant : variants)
        for (const weftDataType_t type : {weftInt8, weftBfloat16, weftFloat64})
            for (const int op : {int(weftSum), int(weftAvg), premul}) {
                Call call;
                call.algorithm = registry::find_algorithm(variant.algorithm);
                call.channels = variant.channels;
                call.type = type;
                call.op = op;
                call.tile_bytes = 2048;
                wild.fill(call, 16, small() ? 333 : 5000, random);
                call.pipelined = call.tiles() >= 4;
                calls.push_back(call);
            }
    const auto results = ranks.run(calls, Driver::threads, random);
    for (size_t i = 0; i < calls.size(); ++i)
        if (const auto wrong = difference(calls[i], results[i], expected(calls[i]))) FAIL_CHECK(*wrong);
}

TEST_CASE("a rank alone has its input, scaled if that is the operation", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    LocalRanks ranks(1);
    for (const char* name : {"one_shot", "two_shot", "ring"})
        for (int type = 0; type < weftNumTypes; ++type)
            for (const int op : {int(weftSum), int(weftAvg), premul})
                for (const bool in_place : {false, true}) {
                    Call call;
                    call.algorithm = registry::find_algorithm(name);
                    call.type = weftDataType_t(type);
                    call.op = op;
                    call.tile_bytes = 192;
                    call.in_place = {in_place};
                    wild.fill(call, 1, 333, random);
                    check(ranks, call, random);
                }
}

TEST_CASE("data for two places is scaled once, in place too", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    LocalRanks ranks(2);
    each_reduction(two_places(), wild, random, [&](const Call& call) { check(ranks, call, random); });
}

namespace {

// Two ranks with a plan each, to be advanced by hand.
struct Pair {
    LocalRanks ranks{2};
    Schedule schedules[2];
    Plan plans[2];
    std::unique_ptr<Run> runs[2];
    size_t heap_used[2] = {FlagBlock::heap_bytes, FlagBlock::heap_bytes};
    std::unique_ptr<FlagBlock> flag_blocks[2];
    std::unique_ptr<Receiver> receivers[2];
    std::unique_ptr<Sender> senders[2];
    std::vector<float> data[2];
    SlotStores slot_stores[2][2];

    Pair(const char* algorithm, const weftDataType_t (&types)[2], uint64_t count, size_t tile_bytes) {
        const Transport& transport = *registry::transports()[0];
        for (int rank = 0; rank < 2; ++rank) {
            const int peer = 1 - rank;
            data[rank].resize(count);
            schedules[rank] = registry::find_algorithm(algorithm)->build({.ranks = 2, .rank = rank}, {});
            Plan& plan = plans[rank];
            plan.operation.collective = Collective::all_reduce;
            plan.operation.type = uint8_t(types[rank]);
            plan.operation.count = count;
            plan.operation_fingerprint = fingerprint(plan.operation);
            plan.schedule = &schedules[rank];
            plan.cpu_kernels = &cpu_kernels();
            plan.slot_stores = slot_stores[rank];
            plan.tile_bytes = tile_bytes;
            plan.tiles = (plan.bytes() + tile_bytes - 1) / tile_bytes;
            flag_blocks[rank] = std::move(*FlagBlock::open(ranks.segment(), rank));
            if (!schedules[rank].shared_ranks.empty()) plan.flags.block = flag_blocks[rank].get();
            plan.ends.resize(1);
            if (schedules[rank].fifo_depth == 0) continue;
            Blob blob;
            receivers[rank] =
                std::move(*transport.listen({rank, peer, 0, 2, 4096, &ranks.segment(), &heap_used[rank]}, blob));
            senders[peer] =
                std::move(*transport.connect({peer, rank, 0, 2, 4096, &ranks.segment(), &heap_used[peer]}, blob));
        }
        for (int rank = 0; rank < 2; ++rank) {
            plans[rank].ends[0] = {receivers[rank].get(), senders[rank].get()};
            runs[rank] = make_run(plans[rank]);
            runs[rank]->start(data[rank].data(), data[rank].data(), nullptr, 1);
        }
    }
};

}  // namespace

TEST_CASE("a call of Weft's own has another plan than the user's, and another fingerprint", "[executor]") {
    Operation user{.collective = Collective::all_gather, .type = weftUint64, .count = 8};
    Operation own = user;
    for (const Purpose purpose : {Purpose::split, Purpose::window, Purpose::windows_end}) {
        own.purpose = purpose;
        CHECK(!(PlanKey(user) == PlanKey(own)));
        CHECK(fingerprint(user) != fingerprint(own));
    }
}

TEST_CASE("a call that differs from the others' is noticed and the rank named", "[executor]") {
    const std::string algorithm = GENERATE("one_shot", "two_shot", "ring");
    Pair pair(algorithm.c_str(), {weftFloat32, weftInt32}, 64, 256);
    CAPTURE(algorithm);
    CHECK(pair.runs[0]->advance() != Progress::mismatch);  // nobody is there yet
    CHECK(pair.runs[1]->advance() == Progress::mismatch);
    CHECK(pair.runs[1]->suspect() == 0);
    CHECK(pair.runs[0]->advance() == Progress::mismatch);
    CHECK(pair.runs[0]->suspect() == 1);
}

TEST_CASE("blocked means that nothing moved and names the missing ranks; finished tiles are movement", "[executor]") {
    const std::string algorithm = GENERATE("one_shot", "two_shot", "ring");
    CAPTURE(algorithm);
    Pair pair(algorithm.c_str(), {weftFloat32, weftFloat32}, 1000, 256);
    Run& first = *pair.runs[0];
    Run& second = *pair.runs[1];
    CHECK(first.advance() == Progress::moved);  // it has posted or sent
    CHECK(first.advance() == Progress::blocked);
    CHECK(first.advance() == Progress::blocked);
    CHECK(first.missing().contains(1));
    CHECK(!first.missing().contains(0));
    // From here on each turn of one lets the other do something, so neither may report blocked before it is done.
    Progress progress[2] = {Progress::blocked, Progress::blocked};
    for (int turn = 0; turn < 1000 && (progress[0] != Progress::done || progress[1] != Progress::done); ++turn)
        for (int rank : {1, 0}) {
            if (progress[rank] == Progress::done) continue;
            progress[rank] = (rank == 0 ? first : second).advance();
            REQUIRE(progress[rank] != Progress::blocked);
        }
    CHECK(progress[0] == Progress::done);
    CHECK(progress[1] == Progress::done);
}

}  // namespace weft::internal::test
