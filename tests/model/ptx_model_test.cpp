// ptx_model_test.cpp: the ways in which kernels of several GPUs pass data to each other, under the axioms of PTX's memory
// model. Each is checked as the kernels do it, and with one thing left out, which the model must refuse.
// Writes of ended kernels of a stream are not covered, nor are loads that have returned before a credit is stored. The
// model does not know streams, and orders no load before a relaxed store.
#include "tests/model/ptx_model.hpp"

#include "tests/catch.hpp"

namespace weft::internal::test::ptx {
namespace {

constexpr int data = 0, flag = 1, count = 2;
constexpr Place block_of(int gpu, int block = 0) { return {gpu, block}; }

// One thing that a faulty program leaves out. `none`: nothing.
enum class Fault { none, no_release, no_acquire, narrow_scope, no_barrier, no_count, apart };

Order unless(bool faulty, Order order) { return faulty ? Order::relaxed : order; }
Scope scope_of(Fault fault) { return fault == Fault::narrow_scope ? Scope::gpu : Scope::sys; }

// A barrier of kernels (kernel_barrier.hpp): thread 0 writes, thread 1 releases a flag for the peer. There thread 2
// acquires it and thread 3 reads. stale: thread 3 misses the write.
Program sync(Fault fault) {
    Program program;
    const int writer = program.thread(block_of(0)), releaser = program.thread(block_of(0)),
              acquirer = program.thread(block_of(1)), reader = program.thread(block_of(1));
    program.write(writer, data, 1);
    if (fault != Fault::no_barrier) program.barrier(writer, 0), program.barrier(releaser, 0);
    program.write(releaser, flag, 1, unless(fault == Fault::no_release, Order::release), scope_of(fault));
    program.read(acquirer, flag, 1, unless(fault == Fault::no_acquire, Order::acquire));
    program.barrier(acquirer, 1);
    program.barrier(reader, 1);
    program.read(reader, data, 0);
    return program;
}

// The departure of a kernel of two blocks (KernelBarrier::depart()). The first block's thread has stored into the peer's
// memory (`stores`), or has loaded from it what the peer then overwrites. The last block tells the peer.
Program departure(Fault fault, bool stores) {
    Program program;
    const int worker = program.thread(block_of(0, 0)), counter = program.thread(block_of(0, 0)),
              last = program.thread(block_of(0, 1)), releaser = program.thread(block_of(0, 1)),
              peer = program.thread(block_of(1));
    const Order counts = unless(fault == Fault::no_count, Order::release);
    if (stores)
        program.write(worker, data, 1);
    else
        program.read(worker, data, 2);  // the peer's later write
    if (fault != Fault::no_barrier) program.barrier(worker, 0), program.barrier(counter, 0);
    program.atomic(counter, count, 0, 1, counts, Scope::gpu);
    program.atomic(last, count, 1, 2, counts, Scope::gpu);
    program.barrier(last, 1);
    program.barrier(releaser, 1);
    program.write(releaser, flag, 1, unless(fault == Fault::no_release, Order::release), scope_of(fault));
    program.read(peer, flag, 1, unless(fault == Fault::no_acquire, Order::acquire));
    if (stores)
        program.read(peer, data, 0);
    else
        program.write(peer, data, 2);
    return program;
}

// An address as a packet line (packet_line.hpp). Each half of a line holds half of the address and the epoch, so one
// access moves both. With Fault::apart, the address and the epoch are two accesses.
Program line(Fault fault) {
    Program program;
    const int sender = program.thread(block_of(0)), receiver = program.thread(block_of(1));
    if (fault == Fault::apart) {
        program.write(sender, data, 1, Order::relaxed);
        program.write(sender, flag, 1, Order::relaxed);
        program.read(receiver, flag, 1, Order::relaxed);
        program.read(receiver, data, 0, Order::relaxed);
    } else {
        // The value 1 is the half with the epoch. A reader that has seen it does not see the old half again.
        program.write(sender, data, 1, Order::relaxed, scope_of(fault));
        program.read(receiver, data, 1, Order::relaxed, scope_of(fault));
        program.read(receiver, data, 0, Order::relaxed, scope_of(fault));
    }
    return program;
}

// The next address overwrites a line behind a departure or an exit barrier, never before the reader has read it.
Program reuse(Fault fault) {
    Program program;
    const int reader = program.thread(block_of(0)), releaser = program.thread(block_of(0)),
              sender = program.thread(block_of(1));
    program.read(reader, data, 2, Order::relaxed);
    if (fault != Fault::no_barrier) program.barrier(reader, 0), program.barrier(releaser, 0);
    program.write(releaser, flag, 1, unless(fault == Fault::no_release, Order::release));
    program.read(sender, flag, 1, unless(fault == Fault::no_acquire, Order::acquire));
    program.write(sender, data, 2, Order::relaxed);
    return program;
}

}  // namespace

TEST_CASE("PTX's axioms decide the textbook's programs", "[ptx]") {
    const auto two = [](Order first, Order second, int seen) {
        Program program;
        const int writer = program.thread(block_of(0)), reader = program.thread(block_of(1));
        program.write(writer, data, 1);
        program.write(writer, flag, 1, first);
        program.read(reader, flag, 1, second);
        program.read(reader, data, seen);
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
        buffered.thread(block_of(thread));
        buffered.write(thread, thread, 1, Order::release);
        buffered.read(thread, 1 - thread, 0, Order::acquire);
    }
    CHECK(buffered.allowed());
    // Two atomic additions do not both see 0.
    Program added;
    for (int thread = 0; thread < 2; ++thread) {
        added.thread(block_of(0, thread));
        added.atomic(thread, count, 0, 1, Order::relaxed, Scope::gpu);
    }
    CHECK_FALSE(added.allowed());
    // Nor does a value come from nowhere, and a thread sees its own writes in order.
    Program alone;
    alone.thread(block_of(0));
    alone.write(0, data, 1);
    alone.read(0, data, 0);
    CHECK_FALSE(alone.allowed());
}

TEST_CASE("a barrier of kernels shows all earlier writes to the peer's threads", "[ptx]") {
    CHECK_FALSE(sync(Fault::none).allowed());
    for (const Fault fault : {Fault::no_release, Fault::no_acquire, Fault::narrow_scope, Fault::no_barrier}) {
        INFO("fault " << int(fault));
        CHECK(sync(fault).allowed());
    }
}

TEST_CASE("a departure by the last block covers the accesses of the others", "[ptx]") {
    for (const bool stores : {true, false}) {
        INFO((stores ? "stores" : "loads"));
        CHECK_FALSE(departure(Fault::none, stores).allowed());
        for (const Fault fault :
             {Fault::no_release, Fault::no_acquire, Fault::narrow_scope, Fault::no_barrier, Fault::no_count}) {
            INFO("fault " << int(fault));
            CHECK(departure(fault, stores).allowed());
        }
    }
}

TEST_CASE("an address and its epoch in one access arrive together", "[ptx]") {
    CHECK_FALSE(line(Fault::none).allowed());
    CHECK(line(Fault::narrow_scope).allowed());
    CHECK(line(Fault::apart).allowed());
}

TEST_CASE("a line is not overwritten before it has been read", "[ptx]") {
    CHECK_FALSE(reuse(Fault::none).allowed());
    for (const Fault fault : {Fault::no_release, Fault::no_acquire, Fault::no_barrier}) {
        INFO("fault " << int(fault));
        CHECK(reuse(fault).allowed());
    }
}

}  // namespace weft::internal::test::ptx
