// api_kernel.cpp: the fake driver: device code, found by name among C++ functions, and launches.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "tests/fake_cuda/kernels.hpp"
#include "tests/fake_cuda/work.hpp"

using namespace weft::internal::fake;

namespace {

// A kernel in a context: a CUfunction.
struct Function {
    FakeKernel kernel;
    Context* context;
    bool loaded = false;
};

// A kernel of any context: a CUkernel. A launch takes either.
struct Kernel {
    FakeKernel kernel;
    std::map<int, unsigned> shared_bytes;                     // by device: the most dynamic shared memory allowed
    std::map<Context*, std::unique_ptr<Function>> functions;  // handles that were given
};

struct Table {
    std::mutex mutex;
    std::map<std::string, std::unique_ptr<Kernel>> kernels;
};
Table& table() {
    static Table* all = new Table;
    return *all;
}

// Either kind of handle, in the current context.
Function* find_function(CUfunction handle, Context* context, Kernel** kernel) {
    for (auto& [name, each] : table().kernels) {
        *kernel = each.get();
        if (reinterpret_cast<CUfunction>(each.get()) == handle) {
            auto& function = each->functions[context];
            if (!function) function.reset(new Function{each->kernel, context});
            return function.get();
        }
        for (auto& [of, function] : each->functions)
            if (reinterpret_cast<CUfunction>(function.get()) == handle) return function.get();
    }
    return nullptr;
}

// Lazy loading waits for all work on the device. A first launch therefore hangs while another kernel spins for it.
void load(Function& function, std::unique_lock<std::mutex>& lock) {
    if (function.loaded) return;
    function.loaded = true;
    lock.unlock();
    world().devices[size_t(function.context->device)]->multiprocessors->drain();
    lock.lock();
}

// A stack that is larger than any before: the driver makes room for it, when all work of the context is done.
void make_room_for_stack(Context* context, const char* kernel) {
    {
        std::lock_guard lock(world().mutex);
        int& room = context->local_bytes;
        if (room == 0) room = world().setting.local_bytes;
        const int wanted = world().setting.stack(kernel);
        if (wanted <= room) return;
        room = wanted;
    }
    wait_all(outstanding(context));
}

// The arguments, copied: the caller's are gone when the kernel runs.
struct Launch {
    FakeKernel kernel;
    unsigned grid[3], block[3], shared_bytes;
    int device;
    bool cooperative;
    std::vector<std::vector<std::byte>> arguments;
    std::vector<void*> pointers;
};

// Of one run; a captured launch runs many times.
struct Running {
    std::shared_ptr<Grid> grid;
    std::atomic<int> error{CUDA_SUCCESS};
};

void sync_grid(FakeBlock& block) { static_cast<Running*>(block.launch)->grid->sync(); }
void fail_launch(FakeBlock& block, int error) { static_cast<Running*>(block.launch)->error.store(error); }

CUresult run(const std::shared_ptr<const Launch>& launch) {
    Running running;
    running.grid = std::make_shared<Grid>();
    Grid& grid = *running.grid;
    grid.blocks = launch->grid[0] * launch->grid[1] * launch->grid[2];
    grid.threads = launch->block[0] * launch->block[1] * launch->block[2];
    grid.shared_bytes = launch->shared_bytes + launch->kernel.shared_bytes;
    grid.registers = launch->kernel.registers;
    grid.cooperative = launch->cooperative;
    grid.run = [&](unsigned number) {
        std::vector<std::max_align_t> shared((launch->shared_bytes + sizeof(std::max_align_t)) /
                                             sizeof(std::max_align_t));
        FakeBlock block{};
        std::copy(launch->grid, launch->grid + 3, block.grid);
        std::copy(launch->block, launch->block + 3, block.block);
        block.index[0] = number % launch->grid[0];
        block.index[1] = number / launch->grid[0] % launch->grid[1];
        block.index[2] = number / launch->grid[0] / launch->grid[1];
        block.shared = reinterpret_cast<std::byte*>(shared.data());
        block.shared_bytes = launch->shared_bytes;
        block.device = launch->device;
        block.cooperative = launch->cooperative;
        block.parameters = const_cast<void**>(launch->pointers.data());
        block.launch = &running;
        block.sync_grid = sync_grid;
        block.fail = fail_launch;
        launch->kernel.run(block);
    };
    world().devices[size_t(launch->device)]->multiprocessors->run(running.grid);
    return CUresult(running.error.load());
}

int attribute_of(const Kernel& kernel, CUfunction_attribute which, int device) {
    switch (which) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return kernel.kernel.threads_max;
        case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: return world().setting.stack(kernel.kernel.name);
        case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: return int(kernel.kernel.shared_bytes);
        case CU_FUNC_ATTRIBUTE_NUM_REGS: return kernel.kernel.registers;
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION: return world().setting.sm;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
            const auto found = kernel.shared_bytes.find(device);
            return found == kernel.shared_bytes.end() ? int(Limits::shared_default) : int(found->second);
        }
        default: return 0;
    }
}

}  // namespace

extern "C" {

void fake_cuda_add_kernel(const FakeKernel& kernel) {
    std::lock_guard lock(table().mutex);
    auto& row = table().kernels[kernel.name];
    if (!row) row = std::make_unique<Kernel>();
    row->kernel = kernel;
}

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned, CUlibraryOption*,
                           void**, unsigned) {
    FAKE_ENTER(LibraryLoadData);
    if (const CUresult early = check_unsafe(); early != CUDA_SUCCESS) return early;
    uint32_t word = 0;
    if (code != nullptr) std::memcpy(&word, code, sizeof word);
    constexpr uint32_t fatbin = 0xBA55ED50, elf = 0x464c457f;
    if (word != fatbin && word != elf) return CUDA_ERROR_INVALID_IMAGE;
    // Code of a toolkit needs a driver of its major version.
    if (world().setting.version / 1000 < CUDA_VERSION / 1000) return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    *library = reinterpret_cast<CUlibrary>(const_cast<void*>(code));
    return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary) {
    FAKE_ENTER(LibraryUnload);
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* handle, CUlibrary, const char* name) {
    FAKE_ENTER(LibraryGetKernel);
    std::lock_guard lock(table().mutex);
    const auto found = table().kernels.find(name);
    if (found == table().kernels.end()) return CUDA_ERROR_NOT_FOUND;
    *handle = reinterpret_cast<CUkernel>(found->second.get());
    return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel handle) {
    FAKE_ENTER(KernelGetFunction);
    FAKE_CURRENT(context);
    std::lock_guard lock(table().mutex);
    Kernel* kernel = nullptr;
    Function* found = find_function(reinterpret_cast<CUfunction>(handle), context, &kernel);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *function = reinterpret_cast<CUfunction>(found);
    return CUDA_SUCCESS;
}

CUresult cuKernelSetAttribute(CUfunction_attribute which, int value, CUkernel handle, CUdevice device) {
    FAKE_ENTER(KernelSetAttribute);
    if (which != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
        unsigned(value) > Limits::shared_block_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard lock(table().mutex);
    Kernel* kernel = nullptr;
    if (find_function(reinterpret_cast<CUfunction>(handle), nullptr, &kernel) == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    kernel->shared_bytes[device] = unsigned(value);
    return check_device(device);
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute which, CUkernel handle, CUdevice device) {
    FAKE_ENTER(KernelGetAttribute);
    std::lock_guard lock(table().mutex);
    Kernel* kernel = nullptr;
    if (find_function(reinterpret_cast<CUfunction>(handle), nullptr, &kernel) == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    *value = attribute_of(*kernel, which, device);
    return check_device(device);
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction handle) {
    FAKE_ENTER(FuncGetAttribute);
    FAKE_CURRENT(context);
    std::unique_lock lock(table().mutex);
    Kernel* kernel = nullptr;
    Function* function = find_function(handle, context, &kernel);
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    load(*function, lock);
    *value = attribute_of(*kernel, which, context->device);
    return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction handle) {
    FAKE_ENTER(FuncLoad);
    FAKE_CURRENT(context);
    if (const CUresult early = check_unsafe(); early != CUDA_SUCCESS) return early;
    std::unique_lock lock(table().mutex);
    Kernel* kernel = nullptr;
    Function* function = find_function(handle, context, &kernel);
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    load(*function, lock);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads, size_t shared_bytes) {
    FAKE_ENTER(OccupancyMaxActiveBlocksPerMultiprocessor);
    FAKE_CURRENT(context);
    std::lock_guard lock(table().mutex);
    Kernel* kernel = nullptr;
    if (find_function(handle, context, &kernel) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (threads <= 0) return CUDA_ERROR_INVALID_VALUE;
    *blocks = Multiprocessors::residency(unsigned(threads), unsigned(shared_bytes) + kernel->kernel.shared_bytes,
                                         kernel->kernel.registers);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction handle, void** arguments, void** extra) {
    FAKE_ENTER(LaunchKernelEx);
    FAKE_CURRENT(context);
    if (config == nullptr || extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Stream> stream;
    if (const CUresult early = find_stream(config->hStream, context, stream); early != CUDA_SUCCESS) return early;
    // Kernel and stream are of one context, which need not be the current one for a handle that names none.
    std::unique_lock lock(table().mutex);
    Kernel* kernel = nullptr;
    Function* function = find_function(handle, stream->context, &kernel);
    if (function == nullptr || function->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
    const int device = stream->context->device;

    const auto launch = std::make_shared<Launch>();
    launch->kernel = kernel->kernel;
    launch->device = device;
    launch->cooperative = false;
    const unsigned grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
    const unsigned block[3] = {config->blockDimX, config->blockDimY, config->blockDimZ};
    std::copy(grid, grid + 3, launch->grid);
    std::copy(block, block + 3, launch->block);
    launch->shared_bytes = config->sharedMemBytes;
    const uint64_t blocks = uint64_t(grid[0]) * grid[1] * grid[2];
    const uint64_t threads = uint64_t(block[0]) * block[1] * block[2];
    if (blocks == 0 || threads == 0 || threads > 1024) return CUDA_ERROR_INVALID_VALUE;
    if (threads > uint64_t(kernel->kernel.threads_max)) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    if (config->sharedMemBytes >
        unsigned(attribute_of(*kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, device)))
        return CUDA_ERROR_INVALID_VALUE;
    const Setting& setting = world().setting;
    world().last_priority = INT_MIN;
    world().last_blocks = int(config->gridDimX);
    for (unsigned i = 0; i < config->numAttrs; ++i) {
        const CUlaunchAttribute& attribute = config->attrs[i];
        switch (attribute.id) {
            case CU_LAUNCH_ATTRIBUTE_COOPERATIVE: launch->cooperative = attribute.value.cooperative != 0; break;
            case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
                if (setting.sm < 90 || setting.version < 11080 || attribute.value.clusterDim.x == 0 ||
                    grid[0] % attribute.value.clusterDim.x != 0)
                    return CUDA_ERROR_INVALID_VALUE;
                break;
            case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
                if (setting.sm < 90 || setting.version < 12000) return CUDA_ERROR_INVALID_VALUE;
                break;
            case CU_LAUNCH_ATTRIBUTE_PRIORITY:
                if (attribute.value.priority > 0 || attribute.value.priority < -5) return CUDA_ERROR_INVALID_VALUE;
                world().last_priority = attribute.value.priority;
                break;
            case CU_LAUNCH_ATTRIBUTE_IGNORE:
            case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: break;
            default: return CUDA_ERROR_INVALID_VALUE;  // not known to this driver
        }
    }
    Grid form;
    form.blocks = unsigned(blocks);
    form.threads = unsigned(threads);
    form.shared_bytes = config->sharedMemBytes + kernel->kernel.shared_bytes;
    form.registers = kernel->kernel.registers;
    Multiprocessors& multiprocessors = *world().devices[size_t(device)]->multiprocessors;
    if (launch->cooperative && !multiprocessors.holds(form)) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;

    size_t total = 0;
    for (int i = 0; i < kernel->kernel.parameters; ++i) {
        const size_t bytes = kernel->kernel.parameter_bytes[i];
        const auto* from = static_cast<const std::byte*>(arguments[i]);
        launch->arguments.emplace_back(from, from + bytes);
        total += bytes;
    }
    if (total > 4096) return CUDA_ERROR_INVALID_VALUE;
    for (auto& argument : launch->arguments) launch->pointers.push_back(argument.data());
    load(*function, lock);
    lock.unlock();
    make_room_for_stack(stream->context, launch->kernel.name);
    return enqueue(stream, [launch] { return run(launch); });
}

}  // extern "C"
