// ptx_pairings_test.cpp: the ways in which kernels pass data to kernels of other GPUs, to other blocks and to the proxy,
// under the axioms of PTX's memory model. Each is checked as the code does it, and with one thing left out, which must
// make the wrong outcome possible. The outcome of each program is wrong: a reader misses what it should see, or sees what
// is written later.
// A GPU of another host of an NVLink domain counts as one more GPU. A thread of the host has a place of its own.
// The model does not know streams: writes of ended kernels, which credits at an entry announce, are not covered.
#include "tests/catch.hpp"
#include "tests/model/ptx_model.hpp"

namespace weft::internal::test::ptx {
namespace {

constexpr int data = 0, flag = 1, count = 2, header = 3, other_data = 4, other_flag = 5;
constexpr Place block_of(int gpu, int block = 0) { return {gpu, block}; }
constexpr Place host = {-1, 0};

// One thing that a faulty program leaves out. `none`: nothing.
enum class Fault {
    none,
    no_release,
    no_acquire,
    narrow_scope,
    no_barrier,
    no_peer_barrier,
    no_count,
    apart,
    no_fence,
    no_load,
    weak_load
};

const char* name_of(Fault fault) {
    constexpr const char* names[] = {
        "none",     "no release",   "no acquire", "narrow scope", "no barrier", "no barrier of the peer",
        "no count", "two accesses", "no fence",   "no load",      "weak load"};
    return names[int(fault)];
}
Order unless(bool faulty, Order order) { return faulty ? Order::relaxed : order; }
Scope scope_of(Fault fault) { return fault == Fault::narrow_scope ? Scope::gpu : Scope::sys; }

// The program without a fault must not have its outcome, and each fault must permit it.
template <class Build>
void check(Build&& build, std::initializer_list<Fault> faults, Assume assume = Assume::axioms) {
    CHECK_FALSE(build(Fault::none).allowed(assume));
    for (const Fault fault : faults) {
        INFO("fault: " << name_of(fault));
        CHECK(build(fault).allowed(assume));
    }
}

// A thread writes or reads, then another thread of its block writes a flag.
struct Teller {
    int worker, first;
    Teller(Program& program, Place place) : worker(program.thread(place)), first(program.thread(place)) {}
    void tell(Program& program, Fault fault, Order order, int word = flag) const {
        if (fault != Fault::no_barrier) program.barrier(worker, worker), program.barrier(first, worker);
        program.write(first, word, 1, order, scope_of(fault));
    }
};
// A thread sees the flag, then another thread of its block reads or writes.
struct Listener {
    int first, worker;
    Listener(Program& program, Place place) : first(program.thread(place)), worker(program.thread(place)) {}
    void hear(Program& program, Fault fault, int word = flag) const {
        program.read(first, word, 1, unless(fault == Fault::no_acquire, Order::acquire));
        program.branch(first);
        meet(program, fault);
    }
    void meet(Program& program, Fault fault) const {
        if (fault != Fault::no_peer_barrier) program.barrier(first, first), program.barrier(worker, first);
    }
};
Order release(Fault fault) { return unless(fault == Fault::no_release, Order::release); }

// KernelBarrier::sync(); with blocks of one GPU StepMachine::reached(); with messages a filled slot. The reader misses the
// data.
Program sync(Fault fault, Place from, Place to) {
    Program program;
    const Teller teller(program, from);
    const Listener listener(program, to);
    program.write(teller.worker, data, 1);
    teller.tell(program, fault, release(fault));
    listener.hear(program, fault);
    program.read(listener.worker, data, 0);
    return program;
}

// peer_one_shot and peer_two_shot read several ranks' memory at once. A thread for each peer sees that peer's flag. The
// reader misses the second peer's data.
Program givers(Fault fault) {
    Program program;
    const Teller one(program, block_of(0)), two(program, block_of(1));
    const Listener listener(program, block_of(2));
    const int second = program.thread(block_of(2));
    program.write(one.worker, data, 1);
    one.tell(program, fault, release(fault));
    program.write(two.worker, other_data, 1);
    two.tell(program, fault, release(fault), other_flag);
    program.read(second, other_flag, 1, unless(fault == Fault::no_acquire, Order::acquire));
    program.read(listener.first, flag, 1, Order::acquire);
    if (fault != Fault::no_peer_barrier) program.barrier(second, listener.first);
    listener.meet(program, Fault::none);
    program.read(listener.worker, data, 1);
    program.read(listener.worker, other_data, 0);
    return program;
}

// KernelBarrier::depart() of a kernel of two blocks. The first block's thread has stored into the peer's memory
// (`stores`), or has loaded from it what the peer then overwrites. The last block tells the peer.
Program departure(Fault fault, bool stores) {
    Program program;
    const Teller first(program, block_of(0, 0)), last(program, block_of(0, 1));
    const int peer = program.thread(block_of(1));
    const Order counts = unless(fault == Fault::no_count, Order::release);
    if (stores)
        program.write(first.worker, data, 1);
    else
        program.read(first.worker, data, 2);  // the peer's later write
    if (fault != Fault::no_barrier) program.barrier(first.worker, 0), program.barrier(first.first, 0);
    program.atomic(first.first, count, 0, 1, counts, Scope::gpu);
    program.atomic(last.worker, count, 1, 2, counts, Scope::gpu);
    last.tell(program, fault == Fault::no_barrier ? Fault::none : fault, release(fault));
    program.read(peer, flag, 1, unless(fault == Fault::no_acquire, Order::acquire));
    if (stores)
        program.read(peer, data, 0);
    else
        program.write(peer, data, 2);
    return program;
}

// AccessKernel::raise(): a put by two blocks. The thread that counts last raises the peer's counter. The reader misses
// what the other block has put.
Program put(Fault fault) {
    Program program;
    const Teller block(program, block_of(0, 0));
    const int last = program.thread(block_of(0, 1));
    const Listener peer(program, block_of(1));
    const Order counts = unless(fault == Fault::no_count, Order::release);
    program.write(block.worker, data, 1);
    if (fault != Fault::no_barrier) program.barrier(block.worker, 0), program.barrier(block.first, 0);
    program.atomic(block.first, count, 0, 1, counts, Scope::gpu);
    program.atomic(last, count, 1, 2, counts, Scope::gpu);
    program.write(last, flag, 1, release(fault), scope_of(fault));
    peer.hear(program, fault);
    program.read(peer.worker, data, 0);
    return program;
}

// A packet line (packet_line.hpp). Each half of a line holds half of the data and the epoch, so one access moves both. With
// Fault::apart, data and epoch are two accesses.
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

// PeerTiles::receive_addresses(): a thread takes an address from a line and leaves it to its block.
Program address(Fault fault) {
    Program program;
    const int sender = program.thread(block_of(0));
    const Listener block(program, block_of(1));
    program.write(sender, data, 1, Order::relaxed);
    program.read(block.first, data, 1, Order::relaxed);
    program.write(block.first, other_data, 1);
    block.meet(program, fault);
    program.read(block.worker, other_data, 0);
    return program;
}

// Memory that a peer overwrites when this rank has read it. The reader sees what is written later.
// read, told, written: the orders of the load, of the flag and of the peer's store.
Program reuse(Fault fault, Order read, Order told, Order written) {
    Program program;
    const Teller reader(program, block_of(0));
    const Listener writer(program, block_of(1));
    program.read(reader.worker, data, 2, read);
    reader.tell(program, fault, unless(fault == Fault::no_release, told));
    writer.hear(program, fault);
    program.write(writer.worker, data, 2, written);
    return program;
}

// TwoShotPackets: the reader of a line clears it, reads it as clear, and announces the next epoch by a credit. The peer stores
// its next data. An observer sees the data, and then the cleared line.
Program cleared(Fault fault) {
    Program program;
    const Teller reader(program, block_of(0));
    const Listener writer(program, block_of(1));
    const int observer = program.thread(block_of(0));
    program.write(reader.worker, data, 3, Order::relaxed);
    if (fault != Fault::no_load)
        program.read(reader.worker, data, 3, fault == Fault::weak_load ? Order::weak : Order::relaxed);
    reader.tell(program, fault, Order::relaxed);
    writer.hear(program, fault);
    program.write(writer.worker, data, 2, Order::relaxed);
    program.read(observer, data, 2, Order::relaxed);
    program.read(observer, data, 3, Order::relaxed);
    return program;
}

// Two messages of steps or p2p to a peer on another host: a kernel fills a pinned slot, and the proxy takes it. Reports of
// failures and of the ends of blocks, RankFlags' words for the host and the counts of waits have the same shape. The proxy
// misses the slot, or the length that the releasing thread has written.
Program to_proxy(Fault fault, bool length) {
    Program program;
    const Teller kernel(program, block_of(0));
    const int proxy = program.thread(host);
    program.write(kernel.worker, data, 1);
    if (fault != Fault::no_barrier) program.barrier(kernel.worker, 0), program.barrier(kernel.first, 0);
    program.write(kernel.first, header, 1);
    program.write(kernel.first, flag, 1, release(fault), scope_of(fault));
    program.read(proxy, flag, 1, unless(fault == Fault::no_acquire, Order::acquire));
    program.read(proxy, length ? header : data, 0);
    return program;
}
// The proxy fills a slot, and a kernel takes it.
Program from_proxy(Fault fault) {
    Program program;
    const int proxy = program.thread(host);
    const Listener kernel(program, block_of(0));
    program.write(proxy, data, 1);
    program.write(proxy, flag, 1, release(fault));
    kernel.hear(program, fault);
    program.read(kernel.worker, data, 0);
    return program;
}

// The kernels of the switch: stores by a rank's own address and loads through the multicast object (`sums`), or stores
// through the object and loads by the own address. The fence stands behind the stores, before the barrier.
Program by_switch(Fault fault, bool sums) {
    Program program;
    const Teller writer(program, block_of(0));
    const Listener reader(program, block_of(1));
    program.write(writer.worker, data, 1, sums ? Order::weak : Order::relaxed);
    if (!sums) program.by_alias();
    if (fault != Fault::no_fence) program.alias_fence(writer.worker);
    writer.tell(program, fault, release(fault));
    reader.hear(program, fault);
    program.read(reader.worker, data, 0, sums ? Order::relaxed : Order::weak);
    if (sums) program.by_alias();
    return program;
}
// A rank has taken results out of staging memory by its own address. Then a peer stores there through the object.
Program switched_reuse(Fault fault) {
    Program program;
    const Teller reader(program, block_of(0));
    const Listener writer(program, block_of(1));
    program.read(reader.worker, data, 2);
    if (fault != Fault::no_fence) program.alias_fence(reader.worker);
    reader.tell(program, fault, release(fault));
    writer.hear(program, fault);
    program.write(writer.worker, data, 2, Order::relaxed);
    program.by_alias();
    return program;
}

}  // namespace

TEST_CASE("a barrier of kernels shows all earlier writes to the peer's threads", "[ptx]") {
    const auto between_gpus = [](Fault fault) { return sync(fault, block_of(0), block_of(1)); };
    check(between_gpus,
          {Fault::no_release, Fault::no_acquire, Fault::narrow_scope, Fault::no_barrier, Fault::no_peer_barrier});
    const auto between_blocks = [](Fault fault) { return sync(fault, block_of(0, 0), block_of(0, 1)); };
    check(between_blocks, {Fault::no_release, Fault::no_acquire, Fault::no_barrier, Fault::no_peer_barrier});
}

TEST_CASE("threads that each hear one peer show the block the data of all peers", "[ptx]") {
    check(givers, {Fault::no_release, Fault::no_acquire, Fault::no_barrier, Fault::no_peer_barrier});
}

TEST_CASE("a departure by the last block covers the accesses of the others", "[ptx]") {
    for (const bool stores : {true, false}) {
        INFO((stores ? "stores" : "loads"));
        check([&](Fault fault) { return departure(fault, stores); },
              {Fault::no_release, Fault::no_acquire, Fault::narrow_scope, Fault::no_barrier, Fault::no_count});
    }
}

TEST_CASE("the signal of a put covers the stores of all blocks", "[ptx]") {
    check(put, {Fault::no_release, Fault::no_acquire, Fault::narrow_scope, Fault::no_barrier, Fault::no_peer_barrier,
                Fault::no_count});
}

TEST_CASE("data and epoch in one access arrive together", "[ptx]") {
    check(line, {Fault::narrow_scope, Fault::apart});
    check(address, {Fault::no_peer_barrier});
}

TEST_CASE("memory is not overwritten before it has been read", "[ptx]") {
    const auto released = {Fault::no_release, Fault::no_acquire, Fault::no_barrier, Fault::no_peer_barrier};
    // Lines of addresses behind an exit barrier, and staging memory and slots of messages.
    check([](Fault fault) { return reuse(fault, Order::relaxed, Order::release, Order::relaxed); }, released);
    check([](Fault fault) { return reuse(fault, Order::weak, Order::release, Order::weak); }, released);
}

TEST_CASE("a cleared line does not overwrite the peer's next data", "[ptx]") {
    check(cleared, {Fault::no_load, Fault::weak_load, Fault::no_barrier, Fault::no_peer_barrier}, Assume::loads_return);
    CHECK(cleared(Fault::none).allowed());  // as with other credits
}

TEST_CASE("a credit is enough where loads have returned", "[ptx]") {
    // Packets of the epoch after the next, and slots of steps: announced by a relaxed store behind a barrier of the block.
    for (const Order order : {Order::relaxed, Order::weak}) {
        const auto credit = [&](Fault fault) { return reuse(fault, order, Order::relaxed, order); };
        check(credit, {Fault::no_barrier, Fault::no_peer_barrier}, Assume::loads_return);
        CHECK(credit(Fault::none).allowed());  // the axioms alone do not order a load before a relaxed store
    }
}

TEST_CASE("kernels and the proxy see each other's slots", "[ptx]") {
    check([](Fault fault) { return to_proxy(fault, false); },
          {Fault::no_release, Fault::no_acquire, Fault::narrow_scope, Fault::no_barrier});
    check([](Fault fault) { return to_proxy(fault, true); },
          {Fault::no_release, Fault::no_acquire, Fault::narrow_scope});
    check(from_proxy, {Fault::no_release, Fault::no_acquire, Fault::no_peer_barrier});
}

TEST_CASE("accesses through the switch and by a rank's own address need a fence and a barrier", "[ptx]") {
    const auto faults = {Fault::no_fence, Fault::no_release, Fault::no_acquire, Fault::no_barrier,
                         Fault::no_peer_barrier};
    for (const bool sums : {true, false}) {
        INFO((sums ? "loads" : "stores") << " through the switch");
        check([&](Fault fault) { return by_switch(fault, sums); }, faults);
    }
    check(switched_reuse, faults);
}

}  // namespace weft::internal::test::ptx
