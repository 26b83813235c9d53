#include "python_caller.hpp"

#include <torch/csrc/utils/pybind.h>

#include <frameobject.h>  // after Python.h

namespace weft_torch {

namespace {

pybind11::object calling_generator() {
    PyFrameObject* const frame = PyEval_GetFrame();  // null in a thread without Python code
    if (!frame) return {};
#if PY_VERSION_HEX >= 0x030B0000
    return pybind11::reinterpret_steal<pybind11::object>(PyFrame_GetGenerator(frame));
#else
    return pybind11::reinterpret_borrow<pybind11::object>(frame->f_gen);
#endif
}

// PyGILState_Check() says yes in every thread once the process had a sub-interpreter.
bool holds_gil() {
    if (!Py_IsInitialized()) return false;
    PyThreadState* const own = PyGILState_GetThisThreadState();  // null in a thread that Python does not know
#if PY_VERSION_HEX >= 0x030D0000
    return own && own == PyThreadState_GetUnchecked();
#else
    return own && own == _PyThreadState_UncheckedGet();
#endif
}

}  // namespace

void when_caller_is_gone(std::function<void()> gone) {
    if (!Py_IsInitialized()) return;
    const pybind11::gil_scoped_acquire gil;
    const pybind11::object generator = calling_generator();
    if (!generator) return;
    // A weak reference calls its function only while it exists itself, so that function frees it.
    const pybind11::cpp_function function([gone = std::move(gone)](pybind11::handle reference) {
        reference.dec_ref();
        gone();
    });
    if (!PyWeakref_NewRef(generator.ptr(), function.ptr())) throw pybind11::error_already_set();
}

WithoutGil::WithoutGil() : held_(holds_gil() ? PyEval_SaveThread() : nullptr) {}

WithoutGil::~WithoutGil() {
    if (held_) PyEval_RestoreThread(held_);
}

}  // namespace weft_torch
