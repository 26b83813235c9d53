// memory.cpp: memory that other ranks can map, and registrations of buffers.
#include <nanobind/nanobind.h>
#include <unistd.h>

#include <utility>

#include "python/binding/bindings.hpp"
#include "python/binding/call.hpp"
#include "python/binding/collector.hpp"
#include "python/binding/memory_view.hpp"

namespace weft::python {

namespace {

// Owns memory of weftHostAlloc or weftMemAlloc.
class Memory {
  public:
    Memory(size_t bytes, bool on_device) : bytes_(bytes) {
        check(on_device ? weftMemAlloc(&data_, bytes) : weftHostAlloc(&data_, bytes));
    }
    Memory(const Memory&) = delete;
    ~Memory() { (void)weftMemFree(data_); }

    void* data() const { return data_; }
    size_t bytes() const { return bytes_; }
    uintptr_t address() const { return reinterpret_cast<uintptr_t>(data_); }

  private:
    void* data_ = nullptr;
    size_t bytes_;
};

class HostMemory : public Memory {
  public:
    explicit HostMemory(size_t bytes) : Memory(bytes, false) {}
};

class DeviceMemory : public Memory {
  public:
    explicit DeviceMemory(size_t bytes) : Memory(bytes, true) {}
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
    const HostMemory* const memory = nb::inst_ptr<HostMemory>(self);
    return PyBuffer_FillInfo(view, self, memory->data(), Py_ssize_t(memory->bytes()), 0, flags);
}

PyType_Slot host_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

// A registered buffer (weftCommRegister).
class Registration {
  public:
    Registration(nb::object comm, nb::handle memory)
        : owner_(std::move(comm)), memory_(memory, "memory", Access::write) {
        Comm& own = nb::cast<Comm&>(owner_);
        own.run([&](weftComm_t comm) { return weftCommRegister(comm, memory_.data(), memory_.bytes(), &handle_); });
    }
    Registration(const Registration&) = delete;
    ~Registration() {
        Comm& own = nb::cast<Comm&>(owner_);
        if (!handle_ || !own.is_open()) return;
        const Frame frame;
        const weftResult_t result = unlocked([this, comm = own.handle()] { return weftCommDeregister(comm, handle_); });
        // Peers may still map the memory.
        if (result != weftSuccess) own.keep(std::move(memory_));
    }
    int visit(visitproc visit, void* arg) const {
        Py_VISIT(owner_.ptr());
        return memory_.visit(visit, arg);
    }
    void close() {
        if (!handle_) return;
        Comm& own = nb::cast<Comm&>(owner_);
        if (own.is_open()) own.run([&](weftComm_t comm) { return weftCommDeregister(comm, handle_); });
        handle_ = nullptr;
        memory_ = Array();
    }

  private:
    nb::object owner_;
    Array memory_;
    void* handle_ = nullptr;
};

}  // namespace

void bind_memory(nb::module_& module) {
    nb::class_<HostMemory>(
        module, "HostMemory",
        "Host memory in whole pages, zeroed, that other ranks of this host can map: numpy.frombuffer takes it.\n\n"
        "Calls on it save a copy, from a few KiB on. Make it before the first call on a communicator.",
        nb::type_slots(host_slots), nb::is_weak_referenceable())
        .def(nb::init<size_t>(), nb::arg("bytes"), InFrame())
        .def("__len__", &HostMemory::bytes, InFrame())
        .def_prop_ro("address", &HostMemory::address);
    nb::class_<DeviceMemory>(
        module, "DeviceMemory",
        "Memory of the current CUDA device that other processes can map, with __cuda_array_interface__.",
        nb::is_weak_referenceable())
        .def(nb::init<size_t>(), nb::arg("bytes"), InFrame())
        .def("__len__", &DeviceMemory::bytes, InFrame())
        .def_prop_ro("address", &DeviceMemory::address)
        .def_prop_ro("__cuda_array_interface__",
                     [](const DeviceMemory& memory) { return cuda_array_interface(memory.data(), memory.bytes()); });
    nb::class_<Registration>(module, "Registration", nb::type_slots(collected<Registration>()),
                             nb::is_weak_referenceable())
        .def(nb::init<nb::object, nb::handle>(), InFrame())
        .def("_close", &Registration::close, InFrame());
}

}  // namespace weft::python
