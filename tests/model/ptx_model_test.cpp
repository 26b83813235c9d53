// ptx_model_test.cpp: the axioms of PTX's memory model by programs whose outcomes are known.
#include "tests/model/ptx_model.hpp"

#include "tests/catch.hpp"

namespace weft::internal::test::ptx {
namespace {

constexpr int x = 0, y = 1;  // locations
constexpr Place on_gpu(int gpu, int block = 0) { return {gpu, block}; }

}  // namespace

TEST_CASE("PTX's axioms decide the textbook's programs", "[ptx]") {
    const auto two = [](Order first, Order second, int seen) {
        Program program;
        const int writer = program.thread(on_gpu(0)), reader = program.thread(on_gpu(1));
        program.write(writer, x, 1);
        program.write(writer, y, 1, first);
        program.read(reader, y, 1, second);
        program.read(reader, x, seen);
        return program.allowed();
    };
    CHECK(two(Order::release, Order::acquire, 1));
    CHECK_FALSE(two(Order::release, Order::acquire, 0));
    CHECK(two(Order::relaxed, Order::acquire, 0));
    CHECK(two(Order::release, Order::relaxed, 0));
    CHECK(two(Order::weak, Order::weak, 0));
    // Store buffering: without fences both may miss the other's write.
    Program buffered;
    for (int thread = 0; thread < 2; ++thread) {
        buffered.thread(on_gpu(thread));
        buffered.write(thread, thread, 1, Order::release);
        buffered.read(thread, 1 - thread, 0, Order::acquire);
    }
    CHECK(buffered.allowed());
    // Two atomic additions do not both see 0.
    Program added;
    for (int thread = 0; thread < 2; ++thread) {
        added.thread(on_gpu(0, thread));
        added.atomic(thread, x, 0, 1, Order::relaxed, Scope::gpu);
    }
    CHECK_FALSE(added.allowed());
    // Nor does a value come from nowhere, and a thread sees its own writes in order.
    Program alone;
    alone.thread(on_gpu(0));
    alone.write(0, x, 1);
    alone.read(0, x, 0);
    CHECK_FALSE(alone.allowed());
}

TEST_CASE("a load that a later store feeds is against what GPUs do, not against the axioms", "[ptx]") {
    // Load buffering: each thread loads what the other stores behind its own load.
    const auto buffered = [](bool branches) {
        Program program;
        for (int thread = 0; thread < 2; ++thread) {
            program.thread(on_gpu(thread));
            program.read(thread, thread, 1, Order::relaxed);
            if (branches) program.branch(thread);
            program.write(thread, 1 - thread, 1, Order::relaxed);
        }
        return program;
    };
    CHECK(buffered(true).allowed());
    CHECK_FALSE(buffered(true).allowed(Assume::loads_return));
    CHECK(buffered(false).allowed(Assume::loads_return));
}

TEST_CASE("accesses by two addresses of the same memory need a fence between them", "[ptx]") {
    const auto alone = [](bool fenced) {
        Program program;
        program.thread(on_gpu(0));
        program.write(0, x, 1);
        if (fenced) program.alias_fence(0);
        program.read(0, x, 0);
        program.by_alias();
        return program.allowed();
    };
    CHECK(alone(false));
    CHECK_FALSE(alone(true));
}

}  // namespace weft::internal::test::ptx
