// collector.hpp: shows Python's garbage collector the references of an object, so that cycles through it are freed.
// A program often keeps a reduction or a window as an attribute of its communicator.
#pragma once
#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace weft::python {

// The slots of a class with `int visit(visitproc visit, void* arg) const`. The other objects of a cycle break it.
template <class Object>
PyType_Slot* collected() {
    constexpr auto traverse = [](PyObject* self, visitproc visit, void* arg) -> int {
        Py_VISIT(Py_TYPE(self));
        return nb::inst_ready(self) ? nb::inst_ptr<Object>(self)->visit(visit, arg) : 0;
    };
    static PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(static_cast<traverseproc>(traverse))},
                                  {0, nullptr}};
    return slots;
}

}  // namespace weft::python
