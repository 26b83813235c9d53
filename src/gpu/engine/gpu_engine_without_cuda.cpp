// gpu_engine_without_cuda.cpp: GpuEngine in a build without the CUDA driver's headers: there is no device. Only find()
// can be called, because it makes no engine.
#include <atomic>
#include <cstdlib>

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

struct GpuEngine::State {};

GpuEngine::GpuEngine(std::unique_ptr<State> state) : state_(std::move(state)) {}
GpuEngine::~GpuEngine() = default;

Result<std::unique_ptr<GpuEngine>> GpuEngine::find(int which) {
    if (which >= 0)
        return fail(error::argument_device, "device {} was requested, but this build of Weft has no GPU support",
                    which);
    if (which == current) warn_where_cuda_is_used();
    return std::unique_ptr<GpuEngine>();
}

const char* GpuEngine::why_none() { return "this build of Weft has no GPU support"; }

DeviceFacts GpuEngine::facts() const { std::abort(); }
void GpuEngine::meet(std::shared_ptr<Segment>, const net::Identity*, int, int64_t, std::shared_ptr<const Catalog>,
                     std::shared_ptr<const Machines>) {
    std::abort();
}
Result<bool> GpuEngine::advance() { std::abort(); }
Status GpuEngine::begin(int64_t) { std::abort(); }
bool GpuEngine::copies() const { std::abort(); }
Status GpuEngine::copy_in(Copied, std::span<const DeviceSpan>, std::span<const DeviceSpan>, void*) { std::abort(); }
void* GpuEngine::copied(Copied, const void*) const { std::abort(); }
Status GpuEngine::copy_out(Copied) { std::abort(); }
uint64_t GpuEngine::copied_bytes() const { std::abort(); }
void GpuEngine::finish() const { std::abort(); }
Result<BufferPlacement> GpuEngine::placement_of(const DeviceArgument&, const DeviceArgument&, const void*) {
    std::abort();
}
Result<uint64_t> GpuEngine::room(const DeviceArgument&) { std::abort(); }
void GpuEngine::prefer(uint8_t, const std::string&, int) { std::abort(); }
Status GpuEngine::prepare(const DeviceCall&) { std::abort(); }
const Operation& GpuEngine::prepared() const { std::abort(); }
Status GpuEngine::launch(const DeviceCall&) { std::abort(); }
bool GpuEngine::joins() const { std::abort(); }
Status GpuEngine::prepare_coalesced(std::span<const DeviceCall>) { std::abort(); }
const Operation& GpuEngine::prepared_coalesced(size_t) const { std::abort(); }
Status GpuEngine::launch_coalesced(std::span<const DeviceCall>) { std::abort(); }
Status GpuEngine::prepare_messages(std::span<const DeviceMessage>, void*) { std::abort(); }
Status GpuEngine::prepare_messages(const CountedMessages&, void*) { std::abort(); }
Status GpuEngine::launch_messages(void*, const CallSettings&) { std::abort(); }
Status GpuEngine::fits_window(const void*, size_t, bool) const { std::abort(); }
Status GpuEngine::open_window(uint32_t, void*, size_t, WindowPart&) { std::abort(); }
std::vector<int> GpuEngine::window_missing(uint32_t) const { std::abort(); }
Result<bool> GpuEngine::reach_window(uint32_t, std::span<const WindowPart>) { std::abort(); }
void GpuEngine::begin_to_close_window(uint32_t) { std::abort(); }
bool GpuEngine::window_closed(uint32_t) { std::abort(); }
bool GpuEngine::idle() const { std::abort(); }
Status GpuEngine::prepare_access(const DeviceAccess&) { std::abort(); }
Status GpuEngine::launch_access(const DeviceAccess&) { std::abort(); }
std::optional<int> GpuEngine::register_buffer(const void*, size_t) { std::abort(); }
Status GpuEngine::deregister_buffer(int) { std::abort(); }
void GpuEngine::look(bool) const { std::abort(); }
std::string GpuEngine::explain(const Operation&, uint8_t) const { std::abort(); }
uint64_t GpuEngine::device_bytes() const { std::abort(); }

Result<void*> allocate_device_memory(size_t bytes) {
    return fail(error::gpu_not_built,
                "weftMemAlloc cannot allocate {} bytes: this build of Weft has no GPU support; weftHostAlloc allocates "
                "host memory",
                bytes);
}
bool free_device_memory(void*) { return false; }
std::span<const std::byte> own_device_memory(const void*) { return {}; }

}  // namespace weft::internal
