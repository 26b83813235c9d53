#include "src/drivers/cuda/kernel.hpp"

namespace weft::internal::cuda {

Result<Library> Library::load(const Driver& driver, const void* code) {
    WEFT_TRY(driver.need(driver.LibraryLoadData != nullptr && driver.LaunchKernelEx != nullptr, "cuLibraryLoadData"));
    Library library;
    const CUresult result = driver.LibraryLoadData(&library.handle_, code, nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (result != CUDA_SUCCESS) {
        Status why = driver.failure(result, "load Weft's device code");
        return fail(why, "{}; the driver supports CUDA {}, and the code was built with CUDA {}", why.sentence(),
                    version_text(driver.version()), version_text(CUDA_VERSION));
    }
    library.driver_ = &driver;
    return library;
}

Result<Kernel> Kernel::load(const Library& library, const Context& context, const char* name, unsigned shared_bytes) {
    const Driver& driver = context.driver();
    ContextScope scope(context);
    WEFT_TRY(scope.take_status());
    CUkernel kernel = nullptr;
    WEFT_TRY(driver.check(driver.LibraryGetKernel(&kernel, library.handle(), name), "find the kernel {}", name));
    Kernel result;
    result.driver_ = &driver;
    result.name_ = name;
    WEFT_TRY(driver.check(driver.KernelGetFunction(&result.function_, kernel), "load the kernel {} on device {}", name,
                          context.device()));
    if (shared_bytes > 0) {
        WEFT_TRY(driver.check(driver.KernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                        int(shared_bytes), kernel, context.device()),
                              "let the kernel {} use {} bytes of shared memory on device {}", name, shared_bytes,
                              context.device()));
    }
    // Before 12.4 a query of an attribute is what loads the kernel.
    if (driver.FuncLoad != nullptr)
        WEFT_TRY(
            driver.check(driver.FuncLoad(result.function_), "load the kernel {} on device {}", name, context.device()));
    WEFT_TRY(driver.check(
        driver.FuncGetAttribute(&result.threads_max_, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, result.function_),
        "query the limits of the kernel {}", name));
    return result;
}

Result<int> Kernel::blocks_per_multiprocessor(int threads, size_t shared_bytes) const {
    int blocks = 0;
    WEFT_TRY(
        driver_->check(driver_->OccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function_, threads, shared_bytes),
                       "query how many blocks of the kernel {} run at once", name_));
    return blocks;
}

CUresult Kernel::enqueue(const LaunchShape& shape, CUstream stream, void** arguments) const {
    std::array<CUlaunchAttribute, 4> attributes;
    CUlaunchConfig config{};
    config.gridDimX = shape.blocks;
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = shape.threads;
    config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = shape.shared_bytes;
    config.hStream = stream;
    config.attrs = attributes.data();
    const auto add = [&](CUlaunchAttributeID id) -> CUlaunchAttributeValue& {
        CUlaunchAttribute& attribute = attributes[config.numAttrs++];
        attribute.id = id;
        return attribute.value;
    };
    if (shape.cluster_blocks > 0) {
        CUlaunchAttributeValue& value = add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
        value.clusterDim.x = shape.cluster_blocks;
        value.clusterDim.y = value.clusterDim.z = 1;
    }
    if (shape.cooperative) add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = 1;
    if (shape.remote_sync_domain)
        add(CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN).memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
    if (shape.priority) add(CU_LAUNCH_ATTRIBUTE_PRIORITY).priority = *shape.priority;
    return driver_->LaunchKernelEx(&config, function_, arguments, nullptr);
}

Status Kernel::launch(const LaunchShape& shape, CUstream stream, void** arguments) const {
    return driver_->check(enqueue(shape, stream, arguments), "launch the kernel {} with {} blocks of {} threads", name_,
                          shape.blocks, shape.threads);
}

}  // namespace weft::internal::cuda
