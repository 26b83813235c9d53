// module.cpp: the module weft._weft, a client of weft.h. The package python/weft gives it its names and its texts.
#include <dlfcn.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <stdexcept>
#include <string>

#include "python/binding/bindings.hpp"
#include "python/binding/communicator.hpp"
#include "python/binding/failure.hpp"
#include "python/binding/gil.hpp"
#include "python/binding/group.hpp"
#include "python/binding/interrupt.hpp"
#include "python/binding/reduction.hpp"
#include "python/binding/stream.hpp"
#include "python/binding/training/checkpoint.hpp"
#include "python/binding/training/compressor.hpp"
#include "python/binding/training/ddp.hpp"
#include "python/binding/training/optimizer.hpp"
#include "python/binding/training/replica.hpp"

namespace weft::python {

namespace {

// The file of the loaded library.
std::string libweft_path() {
    Dl_info found{};
    if (dladdr(reinterpret_cast<void*>(&weftGetVersion), &found) == 0 || !found.dli_fname) return "";
    return found.dli_fname;
}

int device_count() {
    int count = 0;
    check(weftGetDeviceCount(&count));
    return count;
}

void log_info(const std::string& text) { check(weftLogInfo(text.c_str())); }

std::string version_text(int code) {
    return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." + std::to_string(code % 100);
}

int loaded_version() {
    int version = 0;
    (void)weftGetVersion(&version);
    return version;
}

}  // namespace

}  // namespace weft::python

NB_MODULE(_weft, module) {
    using namespace weft::python;
    if (PyInterpreterState_Get() != PyInterpreterState_Main())
        throw std::runtime_error("weft does not run in a sub-interpreter. Import it in the main interpreter");
    if (loaded_version() != WEFT_VERSION_CODE)
        throw std::runtime_error("this package was built for libweft " + version_text(WEFT_VERSION_CODE) + ", but " +
                                 libweft_path() + " is version " + version_text(loaded_version()) +
                                 ". Remove it from LD_LIBRARY_PATH or LD_PRELOAD, or install one version of both "
                                 "[python.libweft]");
    // Objects that a program keeps until its end are no error.
    nb::set_leak_warnings(false);
    prepare_gil(nb::cast<unsigned long>(nb::module_::import_("threading").attr("main_thread")().attr("ident")));
    prepare_interrupts();

    module.attr("__version__") = version_text(WEFT_VERSION_CODE);
    module.def("libweft_path", &libweft_path);
    module.def("device_count", &device_count);
    module.def("log_info", &log_info);
    module.def("set_error_factory", &set_error_factory);
    bind_communicator(module);
    bind_stream(module);
    bind_group(module);
    bind_reduction(module);
    bind_collectives(module);
    bind_messages(module);
    bind_memory(module);
    bind_training(module);
    bind_training_shard(module);
    bind_checkpoint(module);
    bind_replica(module);
    bind_compressors(module);
    bind_training_local(module);
    bind_training_stragglers(module);
    bind_training_server(module);
    bind_training_optimizer(module);
}
