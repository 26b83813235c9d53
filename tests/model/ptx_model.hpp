// ptx_model.hpp: decides by brute force whether PTX's memory model allows an outcome of a small program. It tries every
// source of every read and every order of the writes to a location, and checks the model's axioms.
// Source: Lustig, Sahasrabuddhe, Giroux, "A Formal Analysis of the NVIDIA PTX Memory Consistency Model", 2019; the
// section "Memory Consistency Model" of NVIDIA's PTX ISA. Fences, dependencies and mixed sizes are left out.
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
    enum class Kind : uint8_t { read, write, arrive, leave } kind;
    int thread;    // -1: the initial value of a location
    int location;  // of a barrier: its number
    int value;     // written, or that the read must return
    Order order = Order::weak;
    Scope scope = Scope::sys;
    bool of_atomic = false;  // this write and the read before it are one atomic operation
};

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

    // Whether some execution that the axioms allow has this outcome.
    bool allowed() const;

    const std::vector<Event>& events() const { return events_; }
    Place place(int thread) const { return places_[size_t(thread)]; }

  private:
    std::vector<Event> events_;
    std::vector<Place> places_;
};

}  // namespace weft::internal::test::ptx
