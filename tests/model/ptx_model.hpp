// ptx_model.hpp: decides by brute force whether PTX's memory model allows an outcome of a small program. It tries every
// source of every read and every order of the writes to a location, and checks the model's axioms.
// Virtual aliases of one location are other addresses of the same memory, such as that of a multicast object.
// Source: Lustig, Sahasrabuddhe, Giroux, "A Formal Analysis of the NVIDIA PTX Memory Consistency Model", 2019; the
// section "Memory Consistency Model" of NVIDIA's PTX ISA. Fences except fence.proxy.alias, and mixed sizes are left out.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace weft::internal::test::ptx {

enum class Order : uint8_t { weak, relaxed, acquire, release };
enum class Scope : uint8_t { block, gpu, sys };

// Where a thread runs.
struct Place {
    int gpu, block;
};

struct Event {
    enum class Kind : uint8_t { read, write, arrive, leave, branch, alias_fence } kind;
    int thread;    // -1: the initial value of a location
    int location;  // of a barrier: its number
    int value;     // written, or that the read must return
    Order order = Order::weak;
    Scope scope = Scope::sys;
    bool of_atomic = false;  // this write and the read before it are one atomic operation
    bool by_alias = false;   // by the location's other address
};

// loads_return: beyond the axioms, what GPUs do. A load has its value before its thread branches on it or passes a barrier
// of the block, so no write behind that feeds it. A strong load has been served where all threads' accesses to the location
// meet. So such a write does not come before the one that feeds it in coherence order either.
enum class Assume : uint8_t { axioms, loads_return };

// A program in the order of each thread. Every location is 0 at first.
class Program {
  public:
    int thread(Place place);
    void write(int thread, int location, int value, Order order = Order::weak, Scope scope = Scope::sys);
    // The outcome in question: the read returns this value.
    void read(int thread, int location, int value, Order order = Order::weak, Scope scope = Scope::sys);
    // atom.acq_rel or, with Order::relaxed, atom.relaxed: returns `before` and leaves `after`.
    void atomic(int thread, int location, int before, int after, Order order, Scope scope);
    // bar.sync of the threads that name this number: of one block.
    void barrier(int thread, int number);
    // The thread branches on the values that it has read.
    void branch(int thread);
    // fence.proxy.alias
    void alias_fence(int thread);
    // The last access is by the location's other address.
    void by_alias() { events_.back().by_alias = true; }

    // Whether some execution that the axioms allow has this outcome.
    bool allowed(Assume assume = Assume::axioms) const;

    const std::vector<Event>& events() const { return events_; }
    Place place(int thread) const { return places_[size_t(thread)]; }

  private:
    std::vector<Event> events_;
    std::vector<Place> places_;
};

}  // namespace weft::internal::test::ptx
