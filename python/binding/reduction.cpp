#include "python/binding/reduction.hpp"

#include <nanobind/stl/string.h>

#include <array>
#include <stdexcept>
#include <string>
#include <utility>

#include "python/binding/bindings.hpp"
#include "python/binding/collector.hpp"
#include "python/binding/communicator.hpp"

namespace weft::python {

namespace {

constexpr std::array<const char*, weftNumOps> names = {"sum", "prod", "max", "min", "avg", "band", "bor", "bxor"};

// memoryview's format of a type. The bits of types that it lacks are unsigned integers.
const char* format_of(weftDataType_t type) {
    switch (type) {
        case weftInt8: return "b";
        case weftInt32: return "i";
        case weftUint32: return "I";
        case weftInt64: return "q";
        case weftUint64: return "Q";
        case weftFloat16: return "e";
        case weftFloat32: return "f";
        case weftFloat64: return "d";
        case weftBfloat16: return "H";
        default: return "B";
    }
}

nb::object view(const void* data, size_t count, weftDataType_t type, int access) {
    nb::object bytes = nb::steal(PyMemoryView_FromMemory(static_cast<char*>(const_cast<void*>(data)),
                                                         Py_ssize_t(count * bytes_of(type)), access));
    if (!bytes.is_valid()) throw nb::python_error();
    return bytes.attr("cast")(format_of(type));
}

}  // namespace

weftRedOp_t op_named(nb::handle name) {
    if (PyUnicode_Check(name.ptr()))
        for (size_t op = 0; op < names.size(); ++op)
            if (PyUnicode_CompareWithASCIIString(name.ptr(), names[op]) == 0) return weftRedOp_t(op);
    refuse("python.reduction", "op is " + nb::cast<std::string>(nb::repr(name)) +
                                   "; it must be sum, prod, max, min, avg, band, bor, bxor, or a reduction that "
                                   "Communicator.reduction or Communicator.scaled_sum made");
}

UserReduction::UserReduction(nb::object comm, nb::object function, nb::handle dtype, bool commutative)
    : comm_(std::move(comm)), function_(std::move(function)) {
    Comm& owner = nb::cast<Comm&>(comm_);
    owner.run([&, type = type_named(dtype)](weftComm_t handle) {
        return weftRedOpCreate(&op_, call, this, type, commutative ? 1 : 0, handle);
    });
    open_ = true;
}

UserReduction::UserReduction(nb::object comm, nb::handle scalar)
    : comm_(std::move(comm)), scalar_(scalar, "scalar", Access::read) {
    Comm& owner = nb::cast<Comm&>(comm_);
    check_count(scalar_, "scalar", 1, "the factor of this rank");
    owner.run([&](weftComm_t handle) {
        return weftRedOpCreatePreMulSum(&op_, scalar_.data(), scalar_.type(),
                                        scalar_.on_device() ? weftScalarDevice : weftScalarHostImmediate, handle);
    });
    open_ = true;
}

UserReduction::~UserReduction() {
    Comm& owner = nb::cast<Comm&>(comm_);
    if (!open_ || !owner.is_open()) return;
    const Frame frame;
    (void)unlocked([this, comm = owner.handle()] { return weftRedOpDestroy(op_, comm); });
}

weftRedOp_t UserReduction::op() const {
    if (!open_) refuse_usage("python.closed", "the reduction is closed. Make a new one");
    return op_;
}

void UserReduction::close() {
    if (!std::exchange(open_, false)) return;
    Comm& owner = nb::cast<Comm&>(comm_);
    if (owner.is_open()) owner.run([&](weftComm_t handle) { return weftRedOpDestroy(op_, handle); });
}

// The library turns a C++ exception into an error of the call on all ranks.
void UserReduction::call(const void* left, const void* right, void* result, size_t count, weftDataType_t type,
                         void* context) {
    UserReduction& reduction = *static_cast<UserReduction*>(context);
    std::string failure;
    {
        const Locked gil;
        if (!gil) throw std::runtime_error("the Python interpreter is exiting");
        nb::object views[3];
        try {
            views[0] = view(left, count, type, PyBUF_READ);
            views[1] = view(right, count, type, PyBUF_READ);
            views[2] = view(result, count, type, PyBUF_WRITE);
            reduction.function_(views[0], views[1], views[2]);
        } catch (nb::python_error& error) {
            failure = std::string(Py_TYPE(error.value().ptr())->tp_name) + ": " +
                      nb::cast<std::string>(nb::str(error.value()));
            nb::cast<Comm&>(reduction.comm_).keep_cause(nb::borrow(error.value()));
        } catch (const std::exception& error) {
            failure = error.what();
        }
        // An access after the call raises an exception, not a fault.
        for (const nb::object& each : views) {
            if (!each.is_valid()) continue;
            const nb::object released = nb::steal(PyObject_CallMethod(each.ptr(), "release", nullptr));
            if (released.is_valid()) continue;
            PyErr_Clear();
            if (failure.empty()) failure = "it keeps an array over its argument: copy what is needed after the call";
        }
    }
    if (!failure.empty()) throw std::runtime_error(failure);
}

OpArgument::OpArgument(nb::handle object, const Array& array) {
    UserReduction* made = nullptr;
    if (PyUnicode_Check(object.ptr())) [[likely]] {
        op = op_named(object);
    } else if (nb::try_cast(object, made)) {
        op = made->op();
        kept = nb::borrow(object);
    } else {
        op = op_named(object);
    }
    if (array.is_boolean() && (op == weftSum || op == weftProd || op == weftAvg || op >= weftNumOps))
        refuse("python.dtype", "the elements are bool, which this op does not reduce. Use max for or, min for and");
}

int UserReduction::visit(visitproc visit, void* arg) const {
    Py_VISIT(comm_.ptr());
    Py_VISIT(function_.ptr());
    return scalar_.visit(visit, arg);
}

void bind_reduction(nb::module_& module) {
    nb::class_<UserReduction>(module, "UserReduction", nb::type_slots(collected<UserReduction>()),
                              nb::is_weak_referenceable())
        .def(nb::init<nb::object, nb::object, nb::handle, bool>(), InFrame())
        .def(nb::init<nb::object, nb::handle>(), InFrame())
        .def("_close", &UserReduction::close, InFrame());
    module.def("op_number", [](nb::handle name) { return int(op_named(name)); });
}

}  // namespace weft::python
