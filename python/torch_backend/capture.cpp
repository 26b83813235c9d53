#include "capture.hpp"

#include <c10/util/env.h>
#include <dlfcn.h>

#include "device_work.hpp"

namespace weft_torch {

namespace {

// A function of the driver that torch has loaded; null: none.
template <class Function>
Function* of_driver(const char* name) {
    static void* const driver = [] {
        const std::string named = c10::utils::get_env("WEFT_CUDA_LIBRARY").value_or("");
        return dlopen(named.empty() ? "libcuda.so.1" : named.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    }();
    return driver ? reinterpret_cast<Function*>(dlsym(driver, name)) : nullptr;
}

}  // namespace

bool is_capturing(const c10::Stream& stream) {
    static auto* const query = of_driver<int(weftStream_t, int*)>("cuStreamIsCapturing");
    int status = 0;
    return query && query(native(stream), &status) == 0 && status != 0;
}

void RelaxedCapture::exchange() {
    static auto* const change = of_driver<int(int*)>("cuThreadExchangeStreamCaptureMode");
    if (change) (void)change(&mode_);
}

}  // namespace weft_torch
