// memory_view.hpp: memory of an object of training, with the buffer protocol or __cuda_array_interface__.
#pragma once
#include <cstdint>

#include "python/binding/collector.hpp"

namespace weft::python {

// Bytes of a device, as cupy, torch and numba read them.
inline nb::dict cuda_array_interface(const void* data, size_t bytes) {
    nb::dict facts;
    facts["shape"] = nb::make_tuple(bytes);
    facts["typestr"] = "|u1";
    facts["data"] = nb::make_tuple(reinterpret_cast<uintptr_t>(data), false);
    facts["version"] = 3;
    return facts;
}

// Keeps its owner, which counts it by add_view() and drop_view(): the memory must not be freed before.
template <class Owner, bool on_device = false>
class MemoryView {
  public:
    static nb::object make(const nb::object& owner, void* data, size_t bytes) {
        return nb::cast(new MemoryView(owner, data, bytes), nb::rv_policy::take_ownership);
    }
    MemoryView(const MemoryView&) = delete;
    ~MemoryView() { nb::cast<Owner&>(owner_).drop_view(); }
    int visit(visitproc visit, void* arg) const {
        Py_VISIT(owner_.ptr());
        return 0;
    }
    static void bind(nb::module_& module, const char* name) {
        if constexpr (on_device) {
            nb::class_<MemoryView>(module, name, nb::type_slots(collected<MemoryView>()), nb::is_weak_referenceable())
                .def("__len__", [](const MemoryView& view) { return view.bytes_; })
                .def_prop_ro("__cuda_array_interface__",
                             [](const MemoryView& view) { return cuda_array_interface(view.data_, view.bytes_); });
            return;
        }
        static PyType_Slot slots[] = {
            collected<MemoryView>()[0], {Py_bf_getbuffer, reinterpret_cast<void*>(fill)}, {0, nullptr}};
        nb::class_<MemoryView>(module, name, nb::type_slots(slots), nb::is_weak_referenceable());
    }

  private:
    MemoryView(const nb::object& owner, void* data, size_t bytes) : owner_(owner), data_(data), bytes_(bytes) {
        nb::cast<Owner&>(owner_).add_view();
    }
    static int fill(PyObject* self, Py_buffer* view, int flags) {
        static char nothing;
        const MemoryView* const own = nb::inst_ptr<MemoryView>(self);
        return PyBuffer_FillInfo(view, self, own->bytes_ ? own->data_ : &nothing, Py_ssize_t(own->bytes_), 0, flags);
    }

    nb::object owner_;
    void* data_;
    size_t bytes_;
};

}  // namespace weft::python
