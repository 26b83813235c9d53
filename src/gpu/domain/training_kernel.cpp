#include "src/gpu/domain/training_kernel.hpp"

#include <map>
#include <mutex>

#include "src/base/per_process.hpp"
#include "src/drivers/cuda/stream.hpp"

namespace weft::internal::cuda {

namespace {

struct LoadedCode {
    std::mutex mutex;
    std::map<const DeviceCode*, Library> libraries;  // once per process
};

Result<Library> library_of(const Driver& driver, const DeviceCode& code) {
    static PerProcess<LoadedCode> of_process;
    LoadedCode& all = of_process.get();
    std::lock_guard lock(all.mutex);
    Library& known = all.libraries[&code];
    if (known) return known;
    auto library = Library::load(driver, code.fatbin.data());
    if (library) known = *library;
    return library;
}

}  // namespace

Result<Kernel> training_kernel(const Context& context, const DeviceCode* code, const char* name) {
    if (!code)
        return fail(error::gpu_no_device_code,
                    "this build of Weft has no device code: no nvcc was found when Weft was built");
    // A capture in another thread would forbid the loading, and would be invalidated by it.
    const RelaxedCapture relaxed(context.driver());
    auto library = library_of(context.driver(), *code);
    if (!library) return library.take_status();
    return Kernel::load(*library, context, name);
}

}  // namespace weft::internal::cuda
