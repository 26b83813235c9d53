// reduction.hpp: the argument `op`, and weft.Reduction: a Python function, or a sum of scaled contributions.
#pragma once
#include <nanobind/nanobind.h>
#include <weft/weft.h>

#include "python/binding/array.hpp"

namespace weft::python {

class Comm;

// Owns a reduction of a communicator. Needs the GIL.
class UserReduction {
  public:
    UserReduction(nb::object comm, nb::object function, nb::handle dtype, bool commutative);
    // The sum of scalar_r * x_r. `scalar` is an array of one element, in host memory or on the communicator's device.
    UserReduction(nb::object comm, nb::handle scalar);
    UserReduction(const UserReduction&) = delete;
    ~UserReduction();

    weftRedOp_t op() const;
    void close();
    int visit(visitproc visit, void* arg) const;

  private:
    static void call(const void* left, const void* right, void* result, size_t count, weftDataType_t type,
                     void* context);

    nb::object comm_;
    nb::object function_;
    Array scalar_;
    weftRedOp_t op_ = weftSum;
    bool open_ = false;
};

// The argument `op` of a call, for elements of `array`.
struct OpArgument {
    OpArgument(nb::handle object, const Array& array);

    weftRedOp_t op = weftSum;
    nb::object kept;  // a weft.Reduction
};

// The number of a built-in reduction by its name.
weftRedOp_t op_named(nb::handle name);

void bind_reduction(nb::module_& module);

}  // namespace weft::python
