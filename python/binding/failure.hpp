// failure.hpp: failed calls of the C interface, and misuse of the Python interface, as Python exceptions.
#pragma once
#include <nanobind/nanobind.h>
#include <weft/weft.h>

#include <string>

namespace nb = nanobind;

namespace weft::python {

// An error of the library, copied from the thread that made the call.
struct Failure {
    weftResult_t code = weftSuccess;
    std::string sentence;
    weftErrorInfo_t info = WEFT_ERROR_INFO_INITIALIZER;

    // The newest error of this thread.
    static Failure newest(weftResult_t code);
};

// weft._errors.make, which makes an exception of the class that the code asks for.
void set_error_factory(nb::object factory);

// The exception of a failure. `cause` may be null.
nb::object exception_of(const Failure& failure, nb::handle cause);
[[noreturn]] void raise(nb::handle exception);
[[noreturn]] void raise(const Failure& failure, nb::handle cause);

// Raises the newest error of this thread unless the call succeeded or is in progress.
inline void check(weftResult_t result) {
    if (result != weftSuccess && result != weftInProgress) [[unlikely]]
        raise(Failure::newest(result), nb::handle());
}

// Raises InvalidArgumentError or InvalidUsageError with an id of python/weft/_errors.py.
[[noreturn]] void refuse(const char* id, const std::string& sentence);
[[noreturn]] void refuse_usage(const char* id, const std::string& sentence);

}  // namespace weft::python
