// communicator.hpp: the object behind weft.Communicator, and the frame of every call on it.
#pragma once
#include <nanobind/nanobind.h>
#include <weft/weft.h>

#include <atomic>
#include <span>
#include <vector>

#include "python/binding/array.hpp"
#include "python/binding/failure.hpp"
#include "python/binding/gil.hpp"
#include "python/binding/interrupt.hpp"

namespace weft::python {

// Owns a weftComm_t. Needs the GIL, except abort_quietly().
class Comm final : public Interruptible {
  public:
    Comm();
    Comm(const Comm&) = delete;
    ~Comm();

    // Raises an exception if the communicator is closed, aborted or not made yet.
    weftComm_t handle() const {
        const weftComm_t comm = handle_.load(std::memory_order_relaxed);
        if (!comm) [[unlikely]]
            refuse_closed();
        return comm;
    }
    bool is_open() const { return handle_.load() != nullptr; }
    // Where a call that makes this communicator writes its handle, now or at the end of a group.
    weftComm_t* place() { return &made_; }
    // Takes what was written to place().
    void take();
    int rank();
    int size();

    void close();
    void abort();
    void abort_quietly() noexcept override;
    // Stands for a communicator that another object owns, until give_back().
    void borrow(weftComm_t comm);
    void give_back() { handle_.store(nullptr); }

    // Raises the newest error of this thread unless the call succeeded. Its cause is the exception of a user's
    // function.
    void check(weftResult_t result) {
        if (result != weftSuccess && result != weftInProgress) [[unlikely]]
            raise_newest(result);
    }
    nb::object exception(const Failure& failure);
    // Makes a call without buffers, without the GIL: it may wait for calls in streams.
    template <class Body>
    void run(Body&& body);
    // Keeps the exception of a user's function for the error that follows.
    void keep_cause(nb::object exception) { cause_ = std::move(exception); }
    bool has_cause() const { return cause_.is_valid(); }
    // Keeps memory until the communicator has ended.
    void keep(Array array) { kept_.push_back(std::move(array)); }

    // Whether a parent process made it, before fork().
    bool is_inherited() const;

    // Python's object, which owns this one.
    nb::object self_object() { return nb::find(this); }

  private:
    [[noreturn]] static void refuse_closed();
    [[noreturn]] void raise_newest(weftResult_t result);
    void destroy() noexcept;

    std::atomic<weftComm_t> handle_{nullptr};
    weftComm_t made_ = nullptr;
    int rank_ = -1, size_ = -1;
    int process_;
    nb::object cause_;
    std::vector<Array> kept_;
};

// Ends all communicators of this process. If a thread is inside a call, its communicator is aborted.
void end_all_communicators();

// Runs a body that calls the library, without the GIL. No signal handler of Python runs: a call that only queues raises
// nothing before its memory is kept.
template <class Body>
weftResult_t unlocked(Body&& body) {
    const Unlocked gil_is_free;
    return body();
}

// The same for a call that blocks: Ctrl-C aborts the objects.
template <class Body>
weftResult_t without_gil(std::span<Interruptible* const> objects, Body&& body) {
    Watch watch(objects);
    for (Interruptible* const object : objects) object->inside.fetch_add(1, std::memory_order_relaxed);
    const weftResult_t result = unlocked([&] {
        const weftResult_t ended = body();
        watch.end();
        for (Interruptible* const object : objects) object->inside.fetch_sub(1, std::memory_order_relaxed);
        return ended;
    });
    watch.raise_pending();
    return result;
}

template <class Body>
void Comm::run(Body&& body) {
    Interruptible* const comms[] = {this};
    check(without_gil(comms, [&, comm = handle()] { return body(comm); }));
}

void bind_communicator(nb::module_& module);

}  // namespace weft::python
