// messages.cpp: messages between two ranks, and weft.Window: one-sided calls.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>

#include "python/binding/bindings.hpp"
#include "python/binding/call.hpp"
#include "python/binding/collector.hpp"

namespace weft::python {

namespace {

void send(Comm& comm, nb::handle x, int peer, nb::handle stream) {
    Array from(x, "x", Access::read);
    run(
        comm, stream,
        [data = from.data(), count = from.count(), type = from.type(), peer](weftComm_t handle, weftStream_t queue) {
            return weftSend(data, count, type, peer, handle, queue);
        },
        from);
}

nb::object recv(Comm& comm, nb::handle out, int peer, nb::handle stream) {
    Array to(out, "out", Access::write);
    run(
        comm, stream,
        [data = to.data(), count = to.count(), type = to.type(), peer](weftComm_t handle, weftStream_t queue) {
            return weftRecv(data, count, type, peer, handle, queue);
        },
        to);
    return nb::borrow(out);
}

nb::object send_recv(Comm& comm, nb::handle x, int target, nb::handle out, int source, nb::handle stream) {
    Array from(x, "x", Access::read), to(out, "out", Access::write);
    check_alike(from, "x", to, "out");
    run(
        comm, stream,
        [sent = from.data(), sent_count = from.count(), target, received = to.data(), received_count = to.count(),
         source, type = from.type()](weftComm_t handle, weftStream_t queue) {
            return weftSendRecv(sent, sent_count, target, received, received_count, source, type, handle, queue);
        },
        from, to);
    return nb::borrow(out);
}

void signal(Comm& comm, int peer, int index, int context, nb::handle stream) {
    run(comm, stream, [peer, index, context](weftComm_t handle, weftStream_t queue) {
        return weftSignal(peer, index, context, 0, handle, queue);
    });
}

// (peer, count, index, context) of each.
using Signals = std::vector<std::tuple<int, int, int, int>>;

void wait_signals(Comm& comm, const Signals& signals, nb::handle stream) {
    std::vector<weftWaitSignalDesc_t> described;
    for (const auto& [peer, count, index, context] : signals) described.push_back({count, peer, index, context});
    run(comm, stream, [&](weftComm_t handle, weftStream_t queue) {
        return weftWaitSignal(int(described.size()), described.data(), handle, queue);
    });
}

// This rank's handle of a window, with the memory that the peers reach.
class Window {
  public:
    Window(nb::object comm, nb::handle memory) : owner_(std::move(comm)) {
        if (!memory.is_none()) memory_ = Array(memory, "memory", Access::write);
        Comm& own = this->comm();
        const auto make = [this, handle = own.handle()] {
            return weftCommWindowRegister(handle, memory_.data(), memory_.bytes(), &window_, WEFT_WIN_DEFAULT);
        };
        if (OpenGroup* const group = OpenGroup::mine()) {
            own.check(make());
            group->keep(own);
        } else {
            Interruptible* const comms[] = {&own};
            own.check(without_gil(comms, make));
        }
        open_ = true;
    }
    Window(const Window&) = delete;
    // Deregistering is collective, so the memory stays instead until the communicator has ended.
    ~Window() {
        if (open_ && comm().is_open()) comm().keep(std::move(memory_));
    }

    int visit(visitproc visit, void* arg) const {
        Py_VISIT(owner_.ptr());
        return memory_.visit(visit, arg);
    }

    void close() {
        if (!open_) return;
        Comm& own = comm();
        if (own.is_open()) {
            const auto end = [this, handle = own.handle()] { return weftCommWindowDeregister(handle, window_); };
            if (OpenGroup* const group = OpenGroup::mine()) {
                own.check(end());
                std::vector<Array> kept;
                kept.push_back(std::move(memory_));
                group->keep(own, StreamArgument(nb::none()), std::move(kept));
            } else {
                Interruptible* const comms[] = {&own};
                own.check(without_gil(comms, end));
            }
        }
        open_ = false;
        memory_ = Array();
    }

    void put(nb::handle x, int peer, size_t offset, nb::handle stream) {
        Array from(x, "x", Access::read);
        run(
            comm(), stream,
            [data = from.data(), count = from.count(), type = from.type(), peer, offset, window = handle()](
                weftComm_t comm, weftStream_t queue) {
                return weftPut(data, count, type, peer, window, offset, comm, queue);
            },
            from);
    }

    void put_signal(nb::handle x, int peer, size_t offset, int index, int context, nb::handle stream) {
        Array from(x, "x", Access::read);
        run(
            comm(), stream,
            [data = from.data(), count = from.count(), type = from.type(), peer, offset, index, context,
             window = handle()](weftComm_t comm, weftStream_t queue) {
                return weftPutSignal(data, count, type, peer, window, offset, index, context, 0, comm, queue);
            },
            from);
    }

    nb::object get(nb::handle out, int peer, size_t offset, nb::handle stream) {
        Array to(out, "out", Access::write);
        run(
            comm(), stream,
            [data = to.data(), count = to.count(), type = to.type(), peer, offset, window = handle()](
                weftComm_t comm, weftStream_t queue) {
                return weftGet(data, count, type, peer, window, offset, comm, queue);
            },
            to);
        return nb::borrow(out);
    }

    uintptr_t address() {
        void* address = nullptr;
        comm().check(weftWinGetUserPtr(comm().handle(), handle(), &address));
        return reinterpret_cast<uintptr_t>(address);
    }

  private:
    Comm& comm() { return nb::cast<Comm&>(owner_); }
    weftWindow_t handle() const {
        if (!open_) refuse_usage("python.closed", "the window is closed. Make a new one on all ranks");
        return window_;
    }

    nb::object owner_;
    Array memory_;
    weftWindow_t window_ = nullptr;
    bool open_ = false;
};

}  // namespace

void bind_messages(nb::module_& module) {
    const auto any = nb::arg().none();
    const nb::arg comm, number;
    module.def("send", &send, comm, any, number, any, InFrame());
    module.def("recv", &recv, comm, any, number, any, InFrame());
    module.def("send_recv", &send_recv, comm, any, number, any, number, any, InFrame());
    module.def("signal", &signal, comm, number, number, number, any, InFrame());
    module.def("wait_signals", &wait_signals, comm, nb::arg(), any, InFrame());
    nb::class_<Window>(module, "Window", nb::type_slots(collected<Window>()), nb::is_weak_referenceable())
        .def(nb::init<nb::object, nb::handle>(), nb::arg(), any, InFrame())
        .def("_close", &Window::close, InFrame())
        .def("_put", &Window::put, any, number, number, any, InFrame())
        .def("_put_signal", &Window::put_signal, any, number, number, number, number, any, InFrame())
        .def("_get", &Window::get, any, number, number, any, InFrame())
        .def_prop_ro("_address", &Window::address, InFrame());
}

}  // namespace weft::python
