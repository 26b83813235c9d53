// forms_test.cpp: a fused instruction is defined by its expansion. The same calls, run fused, expanded, and expanded
// with overlapped tiles, end in the same bits; so do all sets of CPU kernels.
#include "tests/executor/wild_inputs.hpp"

namespace weft::internal::test {

TEST_CASE("a fused instruction leaves the bits of its expansion, run by the step machine", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    for (const int n : {2, 3, 4, 5, 8}) {
        LocalRanks ranks(n);
        for (const char* name : {"one_shot", "two_shot"})
            for (int type = 0; type < weftNumTypes; ++type)
                for (const int op : reductions_of(type))
                    for (const size_t tiles : {1, 2, 4, 7}) {
                        if (small() && random() % 16 != 0) continue;
                        Call call;
                        call.algorithm = registry::find_algorithm(name);
                        call.type = weftDataType_t(type);
                        call.op = op;
                        call.tile_bytes = 64 + 64 * (random() % 12);
                        wild.fill(call, n, (tiles * call.tile_bytes - random() % 64) / size_of(call.type), random);
                        call.in_place = random_flags(n, random);
                        call.pipelined = tiles >= 4;
                        const auto fused = ranks.run(call, random);
                        call.form = Form::expanded;
                        const auto plain = ranks.run(call, random);
                        // Which NaN comes out is open, so not simply equal.
                        if (const auto wrong = difference(call, fused, plain))
                            FAIL_CHECK("fused and expanded differ at " << *wrong);
                        if (const auto wrong = difference(call, plain, expected(call)))
                            FAIL_CHECK("the expansion is wrong at " << *wrong);
                        call.form = Form::expanded_pipelined;
                        if (const auto wrong = difference(call, fused, ranks.run(call, random)))
                            FAIL_CHECK("fused and overlapped expansion differ at " << *wrong);
                    }
    }
}

TEST_CASE("forms may alternate on one flag block from call to call", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    LocalRanks ranks(3);
    std::vector<Call> calls;
    for (int i = 0; i < (small() ? 20 : 200); ++i) {
        Call call;
        call.algorithm = registry::find_algorithm(random() % 2 ? "one_shot" : "two_shot");
        call.form = Form(random() % 3);
        call.tile_bytes = 128;
        call.pipelined = random() % 2;
        wild.fill(call, 3, random() % 300, random);
        calls.push_back(call);
    }
    const auto results = ranks.run(calls, Driver::turns, random);
    for (size_t i = 0; i < calls.size(); ++i)
        if (const auto wrong = difference(calls[i], results[i], expected(calls[i]))) FAIL_CHECK(*wrong);
}

TEST_CASE("every set of CPU kernels leaves the interpreter's bits under every algorithm", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    LocalRanks ranks(4);
    for (const CpuKernels* set : all_cpu_kernels())
        for (const char* name : {"one_shot", "two_shot", "ring"})
            for (int type = 0; type < weftNumTypes; ++type)
                for (const int op : reductions_of(type)) {
                    if (small() && random() % 8 != 0) continue;
                    Call call;
                    call.algorithm = registry::find_algorithm(name);
                    call.type = weftDataType_t(type);
                    call.op = op;
                    call.tile_bytes = 1024;
                    call.cpu_kernels = set;
                    call.stores = random() % 2 ? Stores::streaming : Stores::ordinary;
                    call.send_offset = random() % 64;
                    call.receive_offset = random() % 64;
                    wild.fill(call, 4, 4608 / size_of(call.type) + random() % 10, random);
                    call.pipelined = random() % 2;
                    CAPTURE(set->isa);
                    if (const auto wrong = difference(call, ranks.run(call, random), expected(call)))
                        FAIL_CHECK(*wrong);
                }
}

}  // namespace weft::internal::test
