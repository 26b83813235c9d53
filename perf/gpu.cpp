// gpu.cpp: a GPU through the library's owners of CUDA objects, which the benchmarks do not measure.
#include "gpu.hpp"

#include <fmt/format.h>

#include <map>
#include <optional>

#include "failure.hpp"
#include "gpu_pattern.hpp"
#include "src/drivers/cuda/device.hpp"
#include "src/drivers/cuda/event.hpp"
#include "src/drivers/cuda/graph.hpp"
#include "src/drivers/cuda/memory.hpp"
#include "src/drivers/cuda/stream.hpp"

namespace perf {

namespace {

using namespace weft::internal::cuda;

void need(const weft::internal::Status& status) {
    if (!status) throw Failure(status.sentence());
}

template <class T>
T need(weft::internal::Result<T> result) {
    if (!result) throw Failure(result.status().sentence());
    return std::move(*result);
}

}  // namespace

struct Gpu::Parts {
    const Driver& driver;
    Context context;
    Stream own;  // none if the legacy stream is used
    CUstream stream;
    Event begin, end;
    Graph graph;
    std::map<void*, DeviceMemory> memory;
    std::optional<GpuPattern> pattern;
    std::string no_kernels;  // empty: the pattern kernels are loaded
};

Gpu::Gpu(int device, std::unique_ptr<Parts> parts) : device_(device), parts_(std::move(parts)) {}
Gpu::~Gpu() = default;

int Gpu::count() { return need(device_count(*need(Driver::get()))); }

std::unique_ptr<Gpu> Gpu::use(int device, bool legacy) {
    const int there = count();
    if (device >= there)
        throw Failure(
            fmt::format("a rank wants GPU {}, and there are {}: lower -g or -t, or let several ranks share one "
                        "by --ranks-per-gpu",
                        device, there));
    const Driver& driver = *need(Driver::get());
    Context context = need(Context::retain(driver, device));
    need(driver.check(driver.CtxSetCurrent(context.handle()), "make GPU {} current", device));
    Stream own = legacy ? Stream() : need(Stream::create(context));
    const CUstream stream = own.handle();
    Event begin = need(Event::create(context, Event::EventUse::timing)),
          end = need(Event::create(context, Event::EventUse::timing));
    // The module is loaded before the ranks join: the load may wait for the device, and thus for kernels that wait for
    // this rank.
    auto pattern = GpuPattern::load(context);
    std::unique_ptr<Gpu> gpu(new Gpu(
        device,
        std::unique_ptr<Parts>(new Parts{
            driver, std::move(context), std::move(own), stream, std::move(begin), std::move(end), {}, {}, {}, {}})));
    if (pattern)
        gpu->parts_->pattern = std::move(*pattern);
    else
        gpu->parts_->no_kernels = pattern.status().sentence();
    return gpu;
}

std::string Gpu::name() const {
    const DeviceProperties properties = need(describe_device(parts_->driver, device_));
    return fmt::format("[{}] {}", properties.bus_id, properties.name);
}

void Gpu::make_current() const {
    need(parts_->driver.check(parts_->driver.CtxSetCurrent(parts_->context.handle()), "make GPU {} current", device_));
}

void* Gpu::stream() const { return parts_->stream; }

void* Gpu::allocate(size_t bytes) {
    DeviceMemory memory = need(DeviceMemory::allocate(parts_->context, bytes));
    void* const address = memory.data();
    parts_->memory.emplace(address, std::move(memory));
    return address;
}

void Gpu::free(void* memory) { parts_->memory.erase(memory); }

void Gpu::to_device(void* to, const void* from, size_t bytes) {
    need(copy_async(parts_->driver, CUdeviceptr(to), CUdeviceptr(from), bytes, parts_->stream));
    synchronize();
}

void Gpu::to_host(void* to, const void* from, size_t bytes) { to_device(to, from, bytes); }

void Gpu::synchronize() {
    need(parts_->driver.check(parts_->driver.StreamSynchronize(parts_->stream), "finish the work of GPU {}", device_));
}

const std::string& Gpu::no_kernels() const { return parts_->no_kernels; }

void Gpu::fill(void* buffer, size_t bytes, const Period& period) {
    need(parts_->pattern->fill(parts_->stream, buffer, bytes, period));
}

size_t Gpu::count_wrong(const void* buffer, size_t bytes, const Period& period, size_t element_bytes) {
    return need(parts_->pattern->count_wrong(parts_->stream, buffer, bytes, period, element_bytes));
}

double Gpu::time_us(const std::function<void()>& enqueue) {
    need(parts_->begin.record(parts_->stream));
    enqueue();
    need(parts_->end.record(parts_->stream));
    need(parts_->end.synchronize());
    return double(need(parts_->end.milliseconds_since(parts_->begin))) * 1e3;
}

void Gpu::capture(const std::function<void()>& enqueue) {
    need(Graph::begin(parts_->driver, parts_->stream));
    enqueue();
    parts_->graph = need(Graph::end(parts_->driver, parts_->stream));
}

void Gpu::replay() { need(parts_->graph.launch(parts_->stream)); }

}  // namespace perf
