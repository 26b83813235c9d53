// gpu_engine_without_cuda.cpp: GpuEngine in a build without the CUDA driver's headers: there is no device.
#include <atomic>

#include "src/base/log.hpp"
#include "src/base/options.hpp"
#include "src/base/per_process.hpp"
#include "src/drivers/library.hpp"
#include "src/gpu/engine/device_memory.hpp"
#include "src/gpu/engine/gpu_engine.hpp"

namespace weft::internal {

namespace {

// Such a program is about to pass device memory, which this build cannot tell from host memory.
void warn_where_cuda_is_used() {
    const std::string& path = options().cuda_library;
    if (path == "none") return;
    const DynamicLibrary library = DynamicLibrary::loaded(path.empty() ? "libcuda.so.1" : path);
    const auto current = reinterpret_cast<int (*)(void**)>(library ? library.find("cuCtxGetCurrent") : nullptr);
    void* context = nullptr;
    if (!current || current(&context) != 0 || !context) return;
    static PerProcess<std::atomic<bool>> said;
    if (!said.get().exchange(true))
        WEFT_LOG(warn, init,
                 "a CUDA device is current, and this build of Weft has no GPU support: do not pass device memory");
}

}  // namespace

Result<std::unique_ptr<GpuEngine>> GpuEngine::find(int which) {
    if (which >= 0)
        return fail(error::argument_device, "device {} was requested, but this build of Weft has no GPU support",
                    which);
    if (which == current) warn_where_cuda_is_used();
    return std::unique_ptr<GpuEngine>();
}

const char* GpuEngine::why_none() { return "this build of Weft has no GPU support"; }
int GpuEngine::devices() { return 0; }

Result<void*> allocate_device_memory(size_t bytes) {
    return fail(error::gpu_not_built,
                "weftMemAlloc cannot allocate {} bytes: this build of Weft has no GPU support; weftHostAlloc allocates "
                "host memory",
                bytes);
}
bool free_device_memory(void*) { return false; }
std::span<const std::byte> own_device_memory(const void*) { return {}; }

}  // namespace weft::internal
