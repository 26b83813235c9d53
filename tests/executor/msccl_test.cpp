// msccl_test.cpp: MSCCL files, run over connections, against the sequential interpreter, bit for bit, and against the
// collective's definition.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "src/checker/checker.hpp"
#include "src/msccl/msccl.hpp"
#include "src/schedule/validate.hpp"
#include "tests/executor/checked_runs.hpp"
#include "tests/executor/wild_inputs.hpp"
#include "tests/schedule/mutation.hpp"

namespace weft::internal::test {
namespace {

std::vector<MscclProgram> programs() {
    std::vector<MscclProgram> all;
    for (const auto& entry : std::filesystem::directory_iterator(std::string(WEFT_SCHEDULES) + "/msccl")) {
        if (entry.path().extension() != ".xml") continue;
        std::ifstream file(entry.path(), std::ios::binary);
        auto program = read_msccl(std::string{std::istreambuf_iterator<char>(file), {}});
        INFO(entry.path().string() << ": " << program.status().sentence());
        REQUIRE(program.ok());
        all.push_back(std::move(*program));
    }
    REQUIRE(all.size() >= 10);
    return all;
}

Call call_of(const MscclProgram& program, std::mt19937& random) {
    Call call;
    call.written = &program.schedules;
    call.root = program.root;
    call.tile_bytes = 64 * (1 + random() % (random() % 4 ? 8 : 64));
    call.send_offset = random() % 2 ? 0 : random() % 64;
    call.receive_offset = random() % 2 ? 0 : random() % 64;
    call.stores = random() % 4 ? Stores::ordinary : Stores::streaming;
    const int ranks = int(program.schedules.size());
    if (program.collective != Collective::all_to_all && random() % 2) call.in_place = random_flags(ranks, random);
    return call;
}

}  // namespace

TEST_CASE("MSCCL programs leave the interpreter's bits for every type, reduction and many counts", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    for (const MscclProgram& program : programs()) {
        const int n = int(program.schedules.size());
        LocalRanks ranks(n);
        const bool reduces = facts_of(program.collective).reduces;
        for (int type = 0; type < weftNumTypes; ++type)
            for (const int op : reduces ? reductions_of(type) : std::vector{0})
                for (const size_t count : {size_t(0), size_t(1), size_t(17), random() % 64, random() % 3000}) {
                    if (small() && random() % (sanitized ? 24 : 8) != 0) continue;
                    Call call = call_of(program, random);
                    call.type = weftDataType_t(type);
                    call.op = op;
                    wild.fill(call, n, count, random);
                    check(ranks, {call}, Driver::turns, random);
                }
    }
}

TEST_CASE("sequences of MSCCL programs, a thread a rank, leave the interpreter's bits", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    const auto all = programs();
    for (const int n : {2, 3, 4, 8}) {
        LocalRanks ranks(n);
        std::vector<Call> calls;
        for (int i = 0; i < (small() ? 4 : 20); ++i)
            for (const MscclProgram& program : all) {
                if (int(program.schedules.size()) != n) continue;
                calls.push_back(call_of(program, random));
                calls.back().type = weftDataType_t(random() % weftNumTypes);
                wild.fill(calls.back(), n, random() % 5000, random);
            }
        REQUIRE(!calls.empty());
        check(ranks, calls, Driver::threads, random);
    }
}

TEST_CASE("MSCCL all-reduces give the sum, the product, the extremes and the mean", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    for (const MscclProgram& program : programs()) {
        if (program.collective != Collective::all_reduce) continue;
        const int n = int(program.schedules.size());
        LocalRanks ranks(n);
        for (int type = 0; type < weftNumTypes; ++type)
            for (int op = 0; op < weftNumOps; ++op) {
                if (!serves(weftRedOp_t(op), weftDataType_t(type))) continue;
                if (small() && sanitized && random() % 4 != 0) continue;
                Call call = call_of(program, random);
                call.type = weftDataType_t(type);
                call.op = op;
                for (int rank = 0; rank < n; ++rank) call.inputs.push_back(reference::mild(call.type, 1000, random));
                const reference::Question question{call.type, weftRedOp_t(op), &call.inputs, nullptr};
                for (const Bytes& result : ranks.run(call, random)) {
                    INFO(call.text());
                    CHECK(reference::first_wrong(question, result.data(), false) == 1000);
                }
            }
    }
}

// The interpreter's results; nothing if it blocks for ever or reads unwritten data.
static std::optional<std::vector<Bytes>> interpreted(const Call& call) {
    try {
        return expected(call);
    } catch (const std::logic_error&) {
        return {};
    }
}

// A test of the checker: a program that it accepts leaves the same bits.
TEST_CASE("an MSCCL program with one fault is refused, or gives the same result", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    int refused = 0, passed = 0, wrong = 0;
    for (const MscclProgram& program : programs()) {
        if (program.schedules.size() > 4 || (small() && program.schedules[0].scratch == 0)) continue;
        Call call;
        call.written = &program.schedules;
        call.root = program.root;
        call.type = weftInt32;
        call.tile_bytes = 192;
        const int ranks = int(program.schedules.size());
        for (int rank = 0; rank < ranks; ++rank) {
            const int held =
                parts_held(input_of(program.collective, rank, program.root), parts_of(program.collective, ranks));
            call.inputs.push_back(reference::mild(call.type, size_t(100 * held), random));
        }
        const std::vector<Bytes> right = expected(call);
        const auto visit = [&](const std::vector<Schedule>& mutant, const CheckOptions& options,
                               const std::string& text) {
            if (small() && sanitized && random() % 3 != 0) return;
            CheckedOperation operation;
            operation.schedule = [&](int rank) { return mutant[size_t(rank)]; };
            operation.runs = 3;
            const CheckedOperation twice[] = {operation, operation};
            const Status status = weft::internal::check(ranks, twice, options);
            Call faulty = call;
            faulty.written = &mutant;
            const bool valid =
                std::all_of(mutant.begin(), mutant.end(), [](const Schedule& it) { return validate(it).ok(); });
            const auto got = valid ? interpreted(faulty) : std::nullopt;
            const bool same = got && *got == right;
            ++(status ? passed : refused);
            wrong += !same;
            INFO(program.name << ": " << text << "\n" << status.sentence());
            if (status) CHECK(same);
        };
        each_mutant(program.schedules, 4,
                    [&](const Mutant& mutant) { visit(mutant.schedules, mutant.options, mutant.text); });
        for (int rank = 0; rank < ranks; ++rank)
            for (size_t block = 0; block < program.schedules[size_t(rank)].blocks.size(); ++block)
                for (size_t step = 0; step < program.schedules[size_t(rank)].blocks[block].instructions.size();
                     ++step) {
                    std::vector<Schedule> mutant = program.schedules;
                    Schedule& schedule = mutant[size_t(rank)];
                    Instruction& it = schedule.blocks[block].instructions[step];
                    for (int32_t* cell : {&it.source_cell, &it.target_cell}) {
                        if (*cell < 0 || schedule.scratch < 2) continue;
                        const int32_t before = std::exchange(*cell, (*cell + 1) % schedule.scratch);
                        visit(mutant, {}, fmt::format("shifted cell at rank {}, block {}, step {}", rank, block, step));
                        *cell = before;
                    }
                }
    }
    CHECK(refused > (sanitized ? 100 : 500));
    CHECK(passed > 0);
    CHECK(wrong > (sanitized ? 60 : 300));
}

}  // namespace weft::internal::test
