// mixed_calls_test.cpp: long random sequences of different calls over one flag block and the same connections, without
// a wait between calls. State that one call leaves in lines, slots and rings must not disturb the next.
#include <iostream>

#include "tests/executor/wild_inputs.hpp"

namespace weft::internal::test {
namespace {

Call random_call(const WildInputs& wild, int n, std::mt19937& random) {
    static constexpr const char* names[] = {"one_shot", "two_shot", "two_shot", "ring"};
    Call call;
    call.algorithm = registry::find_algorithm(names[random() % 4]);
    if (call.algorithm == registry::find_algorithm("ring")) call.channels = 1 + int(random() % 3);
    call.type = weftDataType_t(random() % weftNumTypes);
    call.op = any_reduction_of(call.type, random);
    // Small at first and mostly; then slots must grow in the middle of the sequence.
    call.tile_bytes = random() % 16 == 0 ? 16384 : 64 * (1 + random() % 20);
    const size_t count = random() % 8 == 0 ? random() % 4 : random() % (random() % 4 == 0 ? 5000 : 300);
    wild.fill(call, n, count, random);
    call.pipelined = call.tiles() >= 4 && random() % 2 == 0;
    call.exports_buffers = random() % 2 == 0;
    call.cma = random() % 4 == 0;
    call.zero_copy = random() % 2 == 0;
    call.from_arena = random() % 3 == 0 ? std::vector<bool>(size_t(n), true) : random_flags(n, random);
    call.in_place = random_flags(n, random);
    call.send_offset = random() % 2 ? 0 : random() % 64;
    call.receive_offset = random() % 2 ? 0 : random() % 64;
    call.stores = random() % 4 ? Stores::ordinary : Stores::streaming;
    return call;
}

void run_sequence(int n, Reached reached, Driver driver, int length, std::mt19937& random) {
    const WildInputs wild(random);
    LocalRanks ranks(n, reached);
    std::vector<Call> calls;
    for (int i = 0; i < length; ++i) calls.push_back(random_call(wild, n, random));
    const auto results = ranks.run(calls, driver, random);
    for (size_t i = 0; i < calls.size(); ++i) {
        CAPTURE(i, n, int(driver));
        // Where a contribution is read from does not change the bits, so the plain expansion is reference enough.
        if (const auto wrong = difference(calls[i], results[i], expected(calls[i]))) FAIL(*wrong);
    }
}

}  // namespace

TEST_CASE("random sequences of calls, ranks taking turns in random order, leave the interpreter's bits", "[executor]") {
    WEFT_PRINT_SEED();
    std::cout << "seed " << seed() << std::endl;
    std::mt19937 random(seed());
    for (const int n : {2, 3, 4, 5, 8})
        for (const Reached reached : {Reached::threads, Reached::processes})
            run_sequence(n, reached, Driver::turns, !small() ? 400 : sanitized ? 10 : 30, random);
}

TEST_CASE("random sequences of calls, a thread a rank, leave the interpreter's bits", "[executor]") {
    WEFT_PRINT_SEED();
    std::cout << "seed " << seed() << std::endl;
    std::mt19937 random(seed() + 1);
    for (const int n : {2, 3, 4, 8})
        for (const Reached reached : {Reached::threads, Reached::processes})
            run_sequence(n, reached, Driver::threads, small() ? 20 : 200, random);
}

TEST_CASE("the count of tiles may wrap around in the middle of calls", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    for (const int n : {2, 5}) {
        LocalRanks ranks(n);
        ranks.go_to(~uint32_t(0) - 40);
        std::vector<Call> calls;
        for (int i = 0; i < 30; ++i) {
            Call call;
            // Every line has been used by a call of two phases before the count wraps, as after so many tiles it will
            // have.
            call.algorithm = registry::find_algorithm(i < 5 || random() % 2 ? "two_shot" : "one_shot");
            call.tile_bytes = 256;
            wild.fill(call, n, 250 + random() % 200, random);
            call.pipelined = call.tiles() >= 4 && random() % 2;
            calls.push_back(call);
        }
        const auto results = ranks.run(calls, Driver::turns, random);
        for (size_t i = 0; i < calls.size(); ++i)
            if (const auto wrong = difference(calls[i], results[i], expected(calls[i]))) FAIL(*wrong);
    }
}

}  // namespace weft::internal::test
