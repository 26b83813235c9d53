// fake_device.cpp: a device type of torch whose memory, streams and events are those of the fake CUDA driver
// (tests/fake_cuda), so that the backend's path for devices runs without a GPU. Host functions on the streams copy tensors;
// all other operators run on copies in host memory. Python: fake_device.py.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <cuda.h>
#include <dlfcn.h>
#include <torch/library.h>
#include <torch/python.h>

#include <array>
#include <future>
#include <list>
#include <map>
#include <mutex>
#include <set>

namespace {

constexpr c10::DeviceType kind = c10::DeviceType::PrivateUse1;
constexpr int most_devices = 8;
constexpr int pool_streams = 8;

void* symbol(const char* name) {
    static void* const driver = dlopen(getenv("WEFT_CUDA_LIBRARY"), RTLD_NOW);
    void* found = driver ? dlsym(driver, name) : nullptr;
    TORCH_CHECK(found, "WEFT_CUDA_LIBRARY has no ", name);
    return found;
}

#define TEXT_OF(name) #name
#define EXPANDED_TEXT(name) TEXT_OF(name)
// A function of the driver. The header's macros add its version.
#define CU_FUNCTION(name) reinterpret_cast<decltype(&name)>(symbol(EXPANDED_TEXT(name)))
// Calls one, and throws if it fails.
#define CU(name, ...)                                                  \
    do {                                                               \
        static const auto function = CU_FUNCTION(name);                \
        const CUresult result = function(__VA_ARGS__);                 \
        TORCH_CHECK(result == CUDA_SUCCESS, #name, ": ", int(result)); \
    } while (0)

int device_count() {
    static const int count = [] {
        int found = 0;
        CU(cuInit, 0);
        CU(cuDeviceGetCount, &found);
        return std::min(found, most_devices);
    }();
    return count;
}

thread_local int current_device = 0;
thread_local std::array<c10::StreamId, most_devices> current_streams{};

// Makes the primary context current in this thread, as the runtime API does at its first call.
void use(int device) {
    static std::mutex mutex;
    static std::array<CUcontext, most_devices> contexts{};
    std::lock_guard lock(mutex);
    device_count();
    if (!contexts.at(device)) CU(cuDevicePrimaryCtxRetain, &contexts.at(device), device);
    CU(cuCtxSetCurrent, contexts.at(device));
}

// Stream 0 is the legacy stream; the others are a pool that the program shares.
CUstream handle_of(const c10::Stream& stream) {
    if (stream.id() == 0) return nullptr;
    static std::mutex mutex;
    static std::map<std::pair<int, int64_t>, CUstream> made;
    std::lock_guard lock(mutex);
    CUstream& handle = made[{stream.device_index(), stream.id()}];
    if (!handle) {
        use(stream.device_index());
        CU(cuStreamCreateWithPriority, &handle, CU_STREAM_NON_BLOCKING, 0);
    }
    return handle;
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override { return kind; }
    c10::Device getDevice() const override { return {kind, c10::DeviceIndex(current_device)}; }
    c10::Device exchangeDevice(c10::Device to) const override {
        const c10::Device from = getDevice();
        setDevice(to);
        return from;
    }
    void setDevice(c10::Device to) const override { current_device = to.index(); }
    void uncheckedSetDevice(c10::Device to) const noexcept override { current_device = to.index(); }
    c10::DeviceIndex deviceCount() const noexcept override { return c10::DeviceIndex(device_count()); }

    c10::Stream stream(c10::Device device, c10::StreamId id) const {
        const c10::Device indexed = device.has_index() ? device : getDevice();
        return c10::Stream(c10::Stream::UNSAFE, indexed, id);
    }
    c10::Stream getStream(c10::Device device) const override {
        return stream(device, current_streams.at(stream(device, 0).device_index()));
    }
    c10::Stream getDefaultStream(c10::Device device) const override { return stream(device, 0); }
    c10::Stream getStreamFromGlobalPool(c10::Device device, bool = false) const override {
        static std::atomic<int> next{0};
        return stream(device, 1 + next++ % pool_streams);
    }
    c10::Stream getNewStream(c10::Device device, int = 0) const override { return getStreamFromGlobalPool(device); }
    c10::Stream exchangeStream(c10::Stream to) const override {
        return stream(to.device(), std::exchange(current_streams.at(to.device_index()), to.id()));
    }
    void* getStreamNativeHandle(const c10::Stream stream) const override { return handle_of(stream); }
    bool queryStream(const c10::Stream& stream) const override {
        static const auto query = CU_FUNCTION(cuStreamQuery);
        use(stream.device_index());
        return query(handle_of(stream)) == CUDA_SUCCESS;
    }
    void synchronizeStream(const c10::Stream& stream) const override {
        use(stream.device_index());
        CU(cuStreamSynchronize, handle_of(stream));
    }
    void synchronizeDevice(const c10::DeviceIndex device) const override {
        use(device);
        CU(cuCtxSynchronize);
    }

    void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
                const c10::EventFlag flag) const override {
        use(stream.device_index());
        if (!*event) {
            CUevent made = nullptr;
            CU(cuEventCreate, &made, flag == c10::EventFlag::BACKEND_DEFAULT ? 0 : CU_EVENT_DISABLE_TIMING);
            *event = made;
        }
        CU(cuEventRecord, static_cast<CUevent>(*event), handle_of(stream));
    }
    void block(void* event, const c10::Stream& stream) const override {
        use(stream.device_index());
        if (event) CU(cuStreamWaitEvent, handle_of(stream), static_cast<CUevent>(event), 0);
    }
    bool queryEvent(void* event) const override {
        static const auto query = CU_FUNCTION(cuEventQuery);
        const CUresult result = event ? query(static_cast<CUevent>(event)) : CUDA_SUCCESS;
        TORCH_CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY, "cuEventQuery: ", int(result));
        return result == CUDA_SUCCESS;
    }
    void synchronizeEvent(void* event) const override {
        if (event) CU(cuEventSynchronize, static_cast<CUevent>(event));
    }
    void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
        static const auto destroy = CU_FUNCTION(cuEventDestroy);
        if (event) (void)destroy(static_cast<CUevent>(event));
    }
    double elapsedTime(void* begin, void* end, const c10::DeviceIndex) const override {
        float ms = 0;
        CU(cuEventElapsedTime, &ms, static_cast<CUevent>(begin), static_cast<CUevent>(end));
        return ms;
    }
    void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override;
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

c10::Stream current_stream() { return Guard().getStream(Guard().getDevice()); }

// Gives freed memory away at once, as torch's allocator for CUDA does: to the stream for which it was allocated, where the next
// owner's work comes later. Memory that other streams use waits for them.
struct Pool final : c10::Allocator {
    struct Block {
        void* memory;
        size_t bytes;
        c10::Stream stream;
        std::vector<c10::Stream> users;
        std::vector<CUevent> awaited;
    };

    c10::DataPtr allocate(size_t bytes) override {
        const c10::Device device = Guard().getDevice();
        if (bytes == 0) return {nullptr, nullptr, &release, device};
        const size_t rounded = (bytes + 511) / 512 * 512;
        std::lock_guard lock(mutex);
        for (auto at = spare.begin(); at != spare.end(); ++at) {
            if ((*at)->bytes != rounded || (*at)->stream != current_stream() || !is_free(**at)) continue;
            Block* block = *at;
            spare.erase(at);
            return {block->memory, block, &release, device};
        }
        use(device.index());
        CUdeviceptr memory = 0;
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;  // a capture would forbid it
        CU(cuThreadExchangeStreamCaptureMode, &mode);
        CU(cuMemAlloc, &memory, rounded);
        CU(cuThreadExchangeStreamCaptureMode, &mode);
        auto* block = new Block{reinterpret_cast<void*>(memory), rounded, current_stream(), {}, {}};
        return {block->memory, block, &release, device};
    }
    c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
    void copy_data(void* to, const void* from, std::size_t bytes) const override { memcpy(to, from, bytes); }

    static bool is_free(const Block& block) {
        static const auto query = CU_FUNCTION(cuEventQuery);
        for (CUevent event : block.awaited)
            if (query(event) != CUDA_SUCCESS) return false;  // a captured event never ends
        return true;
    }
    static void release(void* context) {
        auto* block = static_cast<Block*>(context);
        if (!block) return;
        Pool& pool = get();
        std::lock_guard lock(pool.mutex);
        for (const c10::Stream& user : block->users) {
            void* event = nullptr;
            Guard().record(&event, user, user.device_index(), c10::EventFlag::PYTORCH_DEFAULT);
            block->awaited.push_back(static_cast<CUevent>(event));
        }
        block->users.clear();
        pool.spare.push_front(block);
    }
    static Pool& get() {
        static auto* const pool = new Pool;
        return *pool;
    }

    std::mutex mutex;
    std::list<Block*> spare;
    int recorded = 0;  // calls of recordDataPtrOnStream
};

void Guard::recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const {
    Pool& pool = Pool::get();
    std::lock_guard lock(pool.mutex);
    ++pool.recorded;
    if (data.get_deleter() == &Pool::release && data.get_context())
        static_cast<Pool::Block*>(data.get_context())->users.push_back(stream);
}

bool is_capturing(const c10::Stream& stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CU(cuStreamIsCapturing, handle_of(stream), &status);
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// Runs in the order of the current stream, or at each launch of the graph that the stream captures.
void enqueue(std::function<void()> work) {
    const c10::Stream stream = current_stream();
    use(stream.device_index());
    const auto run = [](void* argument) { (*static_cast<std::function<void()>*>(argument))(); };
    const auto run_once = [](void* argument) {
        const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(argument));
        (*owned)();
    };
    CU(cuLaunchHostFunc, handle_of(stream), is_capturing(stream) ? +run : +run_once,
       new std::function<void()>(std::move(work)));
}

// The same memory as a tensor of the CPU.
at::Tensor on_host(const at::Tensor& tensor) {
    if (tensor.device().is_cpu()) return tensor;
    return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
}

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
    const c10::OptionalDeviceGuard here(device);
    return at::detail::empty_generic(size, &Pool::get(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                     at::dtype_or_default(type), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef strides, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
    const c10::OptionalDeviceGuard here(device);
    return at::detail::empty_strided_generic(
        size, strides, &Pool::get(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), at::dtype_or_default(type));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
    if (to.numel() == 0) return to;
    const bool crosses = from.device().is_cpu() || to.device().is_cpu();
    const c10::DeviceGuard here(from.device().is_cpu() ? to.device() : from.device());
    enqueue([source = on_host(from.expand_as(to).resolve_conj().resolve_neg()), target = on_host(to)] {
        const c10::InferenceMode no_gradients;
        target.copy_(source);
    });
    if (crosses) Guard().synchronizeStream(current_stream());
    return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
    to.resize_(from.sizes());
    return copy_from(from, to, false);
}

void grow(c10::StorageImpl& storage, size_t bytes) {
    if (bytes <= storage.nbytes()) return;
    c10::DataPtr memory = Pool::get().allocate(bytes);
    if (storage.nbytes() > 0) {
        Guard().synchronizeStream(current_stream());
        memcpy(memory.get(), storage.data(), storage.nbytes());
    }
    storage.set_data_ptr_noswap(std::move(memory));
    storage.set_nbytes(bytes);
}

const at::Tensor& resize(const at::Tensor& tensor, c10::IntArrayRef size, std::optional<at::MemoryFormat>) {
    const c10::DeviceGuard here(tensor.device());
    auto* const self = tensor.unsafeGetTensorImpl();
    self->set_sizes_contiguous(size);
    grow(*self->unsafe_storage().unsafeGetStorageImpl(),
         size_t(self->storage_offset() + self->numel()) * tensor.element_size());
    return tensor;
}

at::Tensor& set_storage(at::Tensor& tensor, at::Storage storage, int64_t offset, c10::IntArrayRef size,
                        c10::IntArrayRef strides) {
    auto* const self = tensor.unsafeGetTensorImpl();
    self->set_storage_keep_dtype(std::move(storage));
    self->set_storage_offset(offset);
    if (strides.empty() && !size.empty())
        self->set_sizes_contiguous(size);
    else
        self->set_sizes_and_strides(size, strides);
    return tensor;
}

at::Tensor& set_tensor(at::Tensor& tensor, const at::Tensor& source) {
    return set_storage(tensor, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor as_strided(const at::Tensor& tensor, c10::IntArrayRef size, c10::IntArrayRef strides,
                      std::optional<int64_t> offset) {
    return at::native::as_strided_tensorimpl(tensor, size, strides, offset);
}

at::Tensor view(const at::Tensor& tensor, c10::IntArrayRef size) { return at::native::view(tensor, size); }

at::Tensor reshape_alias(const at::Tensor& tensor, c10::IntArrayRef size, c10::IntArrayRef strides) {
    return at::native::as_strided_tensorimpl(tensor, size, strides, tensor.storage_offset());
}

at::Scalar local_scalar(const at::Tensor& tensor) { return tensor.cpu().item(); }

void record_stream(at::Tensor& tensor, at::Stream stream) {
    Guard().recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

at::Tensor over(uintptr_t address, int64_t bytes, int device) {
    const at::Device place(kind, c10::DeviceIndex(device));
    const c10::DeviceGuard here(place);
    return at::for_blob(reinterpret_cast<void*>(address), {bytes})
        .options(at::TensorOptions(at::kByte).device(place))
        .target_device(place)
        .make_tensor();
}

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) { at::native::cpu_fallback(op, stack); }

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
    library.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
    library.impl("empty.memory_format", empty);
    library.impl("empty_strided", empty_strided);
    library.impl("_copy_from", copy_from);
    library.impl("_copy_from_and_resize", copy_from_and_resize);
    library.impl("resize_", resize);
    library.impl("set_.source_Storage_storage_offset", set_storage);
    library.impl("set_.source_Tensor", set_tensor);
    library.impl("record_stream", record_stream);
    library.impl("as_strided", as_strided);
    library.impl("view", view);
    library.impl("_reshape_alias", reshape_alias);
    library.impl("view_as_real", at::native::view_as_real);
    library.impl("view_as_complex", at::native::view_as_complex);
    library.impl("_local_scalar_dense", local_scalar);
}

// Repeats the work that the current stream gets between begin() and end().
class Graph {
  public:
    void begin() {
        use(current_device);
        CU(cuStreamBeginCapture, handle_of(current_stream()), CU_STREAM_CAPTURE_MODE_GLOBAL);
    }
    void end() {
        CUgraph graph = nullptr;
        CU(cuStreamEndCapture, handle_of(current_stream()), &graph);
        CU(cuGraphInstantiateWithFlags, &program_, graph, 0);
        CU(cuGraphDestroy, graph);
    }
    void launch() { CU(cuGraphLaunch, program_, handle_of(current_stream())); }
    ~Graph() {
        static const auto destroy = CU_FUNCTION(cuGraphExecDestroy);
        if (program_) (void)destroy(program_);
    }

  private:
    CUgraphExec program_ = nullptr;
};

// Host memory that torch calls pinned.
struct Pinned final : c10::Allocator {
    c10::DataPtr allocate(size_t bytes) override {
        void* memory = malloc(std::max<size_t>(bytes, 1));
        std::lock_guard lock(get().mutex);
        get().living.insert(memory);
        return {memory, memory, &release, at::kCPU};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &release; }
    void copy_data(void* to, const void* from, std::size_t bytes) const override { memcpy(to, from, bytes); }
    static void release(void* memory) {
        std::lock_guard lock(get().mutex);
        get().living.erase(memory);
        free(memory);
    }
    static Pinned& get() {
        static auto* const only = new Pinned;
        return *only;
    }
    std::mutex mutex;
    std::set<const void*> living;
};

// A stream's work behind it waits for open().
class Gate {
  public:
    Gate() {
        enqueue([opened = opened_.get_future().share()] { opened.wait(); });
    }
    void open() { opened_.set_value(); }

  private:
    std::promise<void> opened_;
};

struct Hooks final : at::PrivateUse1HooksInterface {
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
    c10::DeviceIndex deviceCount() const override { return c10::DeviceIndex(device_count()); }
    c10::DeviceIndex getCurrentDevice() const override { return c10::DeviceIndex(current_device); }
    void setCurrentDevice(c10::DeviceIndex device) const override { current_device = device; }
    c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
        return c10::DeviceIndex(std::exchange(current_device, device));
    }
    c10::Allocator* getPinnedMemoryAllocator() const override { return &Pinned::get(); }
    bool isPinnedPtr(const void* memory) const override {
        std::lock_guard lock(Pinned::get().mutex);
        return Pinned::get().living.contains(memory);
    }
    void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
        const c10::DeviceGuard here(storage.device());
        auto* const self = storage.unsafeGetStorageImpl();
        if (bytes > self->nbytes()) return grow(*self, bytes);
        if (bytes == 0) self->set_data_ptr_noswap(Pool::get().allocate(0));
        self->set_nbytes(bytes);
    }
};

}  // namespace

PYBIND11_MODULE(fake_device_extension, module) {
    at::SetAllocator(kind, &Pool::get());
    at::RegisterPrivateUse1HooksInterface(new Hooks);
    module.def("device_count", &device_count);
    module.def("current_device", [] { return current_device; });
    module.def("set_device", [](int device) { current_device = device; });
    py::class_<Gate>(module, "Gate", "Holds the current stream up until open() is called.")
        .def(py::init())
        .def("open", &Gate::open);
    py::class_<Graph>(module, "Graph")
        .def(py::init())
        .def("begin", &Graph::begin)
        .def("end", &Graph::end)
        .def("launch", &Graph::launch);
    module.def(
        "synchronize", [] { Guard().synchronizeDevice(c10::DeviceIndex(current_device)); },
        py::call_guard<py::gil_scoped_release>());
    module.def("over", &over, "A tensor of bytes over a device's memory, as torch.as_tensor makes it for CUDA.");
    module.def("streams_recorded", [] { return Pool::get().recorded; });
}
