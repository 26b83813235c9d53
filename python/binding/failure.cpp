#include "python/binding/failure.hpp"

#include <nanobind/stl/string.h>

namespace weft::python {

namespace {

// Never freed: the interpreter ends before the process does.
nb::object& factory() {
    static nb::object* const made = new nb::object;
    return *made;
}

[[noreturn]] void refuse_with(weftResult_t code, const char* id, const std::string& sentence) {
    Failure failure{code, sentence + " [" + id + "]"};
    failure.info.id = id;
    failure.info.code = code;
    raise(failure, nb::handle());
}

}  // namespace

Failure Failure::newest(weftResult_t code) {
    Failure failure{code, weftGetLastError(nullptr)};
    (void)weftGetLastErrorInfo(nullptr, &failure.info);
    if (failure.sentence.empty()) failure.sentence = weftGetErrorString(code);
    return failure;
}

void set_error_factory(nb::object made) { factory() = std::move(made); }

nb::object exception_of(const Failure& failure, nb::handle cause) {
    const weftErrorInfo_t& info = failure.info;
    return factory()(int(failure.code), failure.sentence, info.id, info.failedRank, info.peer,
                     info.operation ? nb::object(nb::str(info.operation)) : nb::object(nb::none()), info.sequence,
                     cause.is_valid() ? nb::borrow(cause) : nb::object(nb::none()));
}

void raise(nb::handle exception) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
    throw nb::python_error();
}

void raise(const Failure& failure, nb::handle cause) { raise(exception_of(failure, cause)); }

void refuse(const char* id, const std::string& sentence) { refuse_with(weftInvalidArgument, id, sentence); }

void refuse_usage(const char* id, const std::string& sentence) { refuse_with(weftInvalidUsage, id, sentence); }

}  // namespace weft::python
