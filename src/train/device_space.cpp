// device_space.cpp: memory of a CUDA device (memory_space.hpp).
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "src/base/datatype.hpp"
#include "src/drivers/cuda/memory.hpp"
#include "src/drivers/cuda/pointer.hpp"
#include "src/drivers/cuda/stream.hpp"
#include "src/gpu/domain/kernel_set.hpp"
#include "src/gpu/kernels/training/codec_arguments.hpp"
#include "src/gpu/kernels/training/convert_arguments.hpp"
#include "src/train/hooks/codecs.hpp"
#include "src/train/memory_space.hpp"
#include "src/train/peers.hpp"

namespace weft::internal::train {

namespace {

CUdeviceptr address_of(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

struct DeviceStreamPlace : StreamPlace {
    explicit DeviceStreamPlace(cuda::Event made) : event(std::move(made)) {}
    cuda::Event event;
};

Status check_stream(const char* function, const cuda::Context& context, weftStream_t callers) {
    const cuda::ContextScope scope(context);  // the legacy stream is the current context's
    auto facts = cuda::describe_stream(context.driver(), static_cast<CUstream>(callers));
    if (!facts) return facts.take_status();
    if (facts->context != context.handle())
        return fail(error::argument_stream,
                    "{}: the stream belongs to another device or context than the model: create it with the "
                    "model's device current",
                    function);
    if (!facts->capturing) return ok();
    return fail(error::stream_capture,
                "{}: the stream is captured: iterations of training cannot become part of a CUDA graph", function);
}

class DeviceSpace : public MemorySpace {
  public:
    static Result<std::unique_ptr<MemorySpace>> make(int device) {
        auto space = std::make_unique<DeviceSpace>();
        auto driver = cuda::Driver::get();
        if (!driver) return driver.take_status();
        auto context = cuda::Context::retain(**driver, device);
        if (!context) return context.take_status();
        space->context_ = std::move(*context);
        // Gradients are needed soon, so their kernels go first.
        auto stream = cuda::Stream::create(space->context_, cuda::Stream::Priority::highest);
        if (!stream) return stream.take_status();
        space->stream_ = std::move(*stream);
        auto event = cuda::Event::create(space->context_);
        if (!event) return event.take_status();
        space->event_ = std::move(*event);
        return std::unique_ptr<MemorySpace>(std::move(space));
    }

    ~DeviceSpace() override { (void)DeviceSpace::synchronize(); }  // pooled memory goes back by work of the stream

    bool on_device() const override { return true; }
    int device() const override { return context_.device(); }
    weftStream_t stream() const override { return stream_.handle(); }
    Status copy(void* to, const void* from, size_t bytes) override {
        if (bytes == 0) return ok();
        const cuda::ContextScope scope(context_);  // the caller's thread may have none
        return cuda::copy_async(context_.driver(), address_of(to), address_of(from), bytes, stream_.handle());
    }
    Status zero(void* memory, size_t bytes) override {
        if (bytes == 0) return ok();
        const cuda::ContextScope scope(context_);
        return cuda::fill_async(context_.driver(), address_of(memory), 0, bytes, stream_.handle());
    }
    Status check(const char* function, weftStream_t callers) const override {
        return check_stream(function, context_, callers);
    }
    Status prepare_arithmetic() override { return load_kernels(); }
    Status add(void* to, const void* from, size_t count, weftDataType_t type) override {
        if (count == 0) return ok();
        cuda::KernelArguments arguments{};
        arguments.ranks = 2;
        arguments.op = weftSum;
        arguments.bytes = count * size_of(type);
        arguments.inputs[0] = static_cast<const std::byte*>(to);
        arguments.inputs[1] = static_cast<const std::byte*>(from);
        arguments.receive = static_cast<std::byte*>(to);
        void* parameters[] = {&arguments};
        // A block has at least some packs of 16 bytes for each thread.
        constexpr size_t block_bytes = size_t(cuda::threads_max) * 64;
        const size_t blocks = std::clamp<size_t>(arguments.bytes / block_bytes, 1, cuda::blocks_max);
        const cuda::ContextScope scope(context_);
        return kernels_->adder(type).launch({.blocks = unsigned(blocks), .threads = cuda::threads_max},
                                            stream_.handle(), parameters);
    }
    Status scale(void* memory, size_t count, weftDataType_t type, double factor, double divisor) override {
        cuda::ScaleArguments arguments = {memory, count, factor, divisor, type};
        return for_elements(&cuda::KernelSet::scaler, count, &arguments);
    }
    Status encode(const WholeNumbers& form, const float* numbers, size_t count, std::byte* message) override {
        return code(&cuda::KernelSet::encoder, form, const_cast<float*>(numbers), count, message);
    }
    Status decode(const WholeNumbers& form, const std::byte* message, size_t count, float* numbers) override {
        return code(&cuda::KernelSet::decoder, form, numbers, count, const_cast<std::byte*>(message));
    }
    Status convert(void* to, weftDataType_t to_type, const void* from, weftDataType_t from_type,
                   size_t count) override {
        cuda::ConvertArguments arguments = {from, to, count, from_type, to_type};
        return for_elements(&cuda::KernelSet::converter, count, &arguments);
    }
    Status follow(weftStream_t callers) override {
        const cuda::ContextScope scope(context_);  // the legacy stream is the current context's
        WEFT_TRY(event_.record(callers));
        return stream_.wait_for(event_);
    }
    Status lead(weftStream_t callers) override {
        const cuda::ContextScope scope(context_);
        WEFT_TRY(event_.record(stream_.handle()));
        return wait_for(callers, event_);
    }
    Status mark(std::unique_ptr<StreamPlace>& place) override {
        const cuda::ContextScope scope(context_);
        if (!place) {
            auto event = cuda::Event::create(context_);
            if (!event) return event.take_status();
            place = std::make_unique<DeviceStreamPlace>(std::move(*event));
        }
        return static_cast<DeviceStreamPlace&>(*place).event.record(stream_.handle());
    }
    Status lead(weftStream_t callers, const StreamPlace* place) override {
        return place ? wait_for(callers, static_cast<const DeviceStreamPlace&>(*place).event) : ok();
    }
    Status zero_for(weftStream_t callers, void* memory, size_t bytes) override {
        if (bytes == 0) return ok();
        const cuda::ContextScope scope(context_);
        return cuda::fill_async(context_.driver(), address_of(memory), 0, bytes, static_cast<CUstream>(callers));
    }
    Status synchronize() override {
        if (!stream_) return ok();
        const cuda::ContextScope scope(context_);
        return stream_.synchronize();
    }
    Result<std::shared_ptr<void>> allocate(size_t bytes, bool pooled) override {
        if (pooled) return allocate_pooled(bytes);
        const cuda::ContextScope scope(context_);
        void* memory = nullptr;
        WEFT_TRY(called(weftMemAlloc(&memory, bytes)));
        return std::shared_ptr<void>(memory, weftMemFree);
    }
    Result<std::shared_ptr<void>> allocate_on_host(size_t bytes) override {
        const cuda::RelaxedCapture relaxed(context_.driver());
        auto pinned = cuda::PinnedMemory::allocate(context_, bytes);
        if (!pinned) return pinned.take_status();
        memset(pinned->data(), 0, bytes);
        auto owner = std::make_shared<cuda::PinnedMemory>(std::move(*pinned));
        void* const memory = owner->data();
        return std::shared_ptr<void>(std::move(owner), memory);
    }
    bool discard(std::shared_ptr<void>& memory, size_t) override {
        if (!std::get_deleter<Pooled>(memory)) return false;
        memory.reset();
        return true;
    }
    Status back(std::shared_ptr<void>& memory, size_t bytes) override {
        auto made = allocate_pooled(bytes);
        if (!made) return made.take_status();
        memory = std::move(*made);
        return ok();
    }

  private:
    // The deleter of pooled memory.
    struct Pooled {
        std::shared_ptr<cuda::StreamMemory> owner;
        void operator()(void*) { owner.reset(); }
    };
    using KernelOf = const cuda::Kernel& (cuda::KernelSet::*)() const;
    Result<std::shared_ptr<void>> allocate_pooled(size_t bytes) {
        const cuda::ContextScope scope(context_);
        auto memory = cuda::StreamMemory::allocate(context_, bytes, stream_.handle());
        if (!memory) return memory.take_status();
        // Without a pool the end of memory would wait for the device, so discard() keeps it.
        if (!memory->pooled()) return allocate(bytes, false);
        void* const data = memory->data();
        return std::shared_ptr<void>(data, Pooled{std::make_shared<cuda::StreamMemory>(std::move(*memory))});
    }
    // A kernel of which each thread takes some elements.
    Status for_elements(KernelOf kernel, size_t count, void* arguments) {
        const size_t blocks = (count + cuda::convert_threads - 1) / cuda::convert_threads;
        return launch(kernel, std::min<size_t>(blocks, cuda::convert_blocks_max), cuda::convert_threads, arguments);
    }
    Status code(KernelOf kernel, const WholeNumbers& form, float* numbers, size_t count, std::byte* message) {
        cuda::CodecArguments arguments = {numbers, reinterpret_cast<unsigned char*>(message), count, form.block,
                                          form.bits};
        const size_t blocks = (count + form.block - 1) / form.block;
        return launch(kernel, std::min<size_t>(blocks, cuda::codec_blocks_max), cuda::codec_threads, &arguments);
    }
    Status launch(KernelOf kernel, size_t blocks, unsigned threads, void* arguments) {
        if (blocks == 0) return ok();
        WEFT_TRY(load_kernels());
        const cuda::ContextScope scope(context_);
        void* parameters[] = {arguments};
        return (kernels_.get()->*kernel)().launch({.blocks = unsigned(blocks), .threads = threads}, stream_.handle(),
                                                  parameters);
    }
    Status load_kernels() {
        if (kernels_) return ok();
        auto kernels = cuda::KernelSet::of_device(context_.driver(), context_.device());
        if (!kernels) return kernels.take_status();
        kernels_ = std::move(*kernels);
        return ok();
    }
    Status wait_for(weftStream_t callers, const cuda::Event& event) const {
        const cuda::ContextScope scope(context_);
        return context_.driver().check(context_.driver().StreamWaitEvent(callers, event.handle(), 0),
                                       "let a stream wait for a training object");
    }

    cuda::Context context_;
    cuda::Stream stream_;
    cuda::Event event_;                               // recorded anew for each wait
    std::shared_ptr<const cuda::KernelSet> kernels_;  // null before load_kernels()
};

}  // namespace

Result<std::unique_ptr<MemorySpace>> device_space(int device) { return DeviceSpace::make(device); }

Result<std::shared_ptr<void>> pin_for(int device, void* memory, size_t bytes) {
    auto driver = cuda::Driver::get();
    if (!driver) return driver.take_status();
    auto context = cuda::Context::retain(**driver, device);
    if (!context) return context.take_status();
    struct Pinned {
        cuda::Context context;  // outlives the memory
        cuda::PinnedMemory memory;
    };
    auto owner = std::make_shared<Pinned>();
    owner->context = std::move(*context);
    const cuda::RelaxedCapture relaxed(**driver);
    auto pinned = cuda::PinnedMemory::pin(owner->context, memory, bytes);
    if (!pinned) return pinned.take_status();
    owner->memory = std::move(*pinned);
    return std::shared_ptr<void>(std::move(owner));
}

Status check_device_stream(const char* function, int device, weftStream_t callers) {
    auto driver = cuda::Driver::get();
    if (!driver) return driver.take_status();
    auto context = cuda::Context::retain(**driver, device);
    if (!context) return context.take_status();
    return check_stream(function, *context, callers);
}

namespace {

// The driver and the context that answer for the addresses of a call.
class PointerContext {
  public:
    static Result<PointerContext> make() {
        PointerContext made;
        if (!cuda::Driver::in_use()) return made;
        auto driver = cuda::Driver::get();
        if (!driver) return driver.take_status();
        CUcontext current = nullptr;
        WEFT_TRY((*driver)->check((*driver)->CtxGetCurrent(&current), "query the current context"));
        if (current == nullptr) {
            auto context = cuda::Context::of_any_device(**driver);
            if (!context) return context.take_status();
            if (context->handle() == nullptr) return made;
            made.context_.emplace(std::move(*context));
        }
        made.driver_ = *driver;
        return made;
    }
    Result<int> device_of(const void* memory) const {
        if (!driver_) return -1;
        std::optional<cuda::ContextScope> scope;
        if (context_) {
            scope.emplace(*context_);
            WEFT_TRY(scope->take_status());
        }
        const auto facts = cuda::describe_pointer(*driver_, memory);
        if (!facts) return facts.status().copy();
        return facts->on_device() ? facts->device : -1;
    }

  private:
    const cuda::Driver* driver_ = nullptr;  // null: the process uses no device
    std::optional<cuda::Context> context_;  // empty: the current one answers
};

}  // namespace

DeviceFinder device_finder() {
    return [known = std::shared_ptr<PointerContext>()](const void* memory) mutable -> Result<int> {
        if (!memory) return -1;
        if (!known) {
            auto made = PointerContext::make();
            if (!made) return made.take_status();
            known = std::make_shared<PointerContext>(std::move(*made));
        }
        return known->device_of(memory);
    };
}

}  // namespace weft::internal::train
