#include "src/drivers/cuda/memory.hpp"

namespace weft::internal::cuda {

Result<DeviceMemory> DeviceMemory::allocate(const Context& context, size_t bytes) {
    const Driver& driver = context.driver();
    ContextScope scope(context);
    WEFT_TRY(scope.take_status());
    DeviceMemory memory;
    WEFT_TRY(driver.check(driver.MemAlloc(&memory.address_, bytes), "allocate {} bytes on device {}", bytes,
                          context.device()));
    memory.driver_ = &driver;
    memory.context_ = context.handle();
    memory.bytes_ = bytes;
    return memory;
}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(context_, other.context_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

DeviceMemory::~DeviceMemory() {
    if (address_ == 0 || !driver_->here()) return;
    ContextScope scope(*driver_, context_);
    driver_->MemFree(address_);
}

Result<StreamMemory> StreamMemory::allocate(const Context& context, size_t bytes, CUstream stream) {
    const Driver& driver = context.driver();
    StreamMemory memory;
    memory.driver_ = &driver;
    memory.context_ = context.handle();
    memory.stream_ = stream;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (driver.MemAllocAsync && driver.MemFreeAsync) result = driver.MemAllocAsync(&memory.address_, bytes, stream);
    memory.pooled_ = result != CUDA_ERROR_NOT_SUPPORTED;
    if (!memory.pooled_) result = driver.MemAlloc(&memory.address_, bytes);
    WEFT_TRY(driver.check(result, "allocate {} bytes on device {} for a stream", bytes, context.device()));
    return memory;
}

StreamMemory& StreamMemory::operator=(StreamMemory&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(context_, other.context_);
    std::swap(address_, other.address_);
    std::swap(stream_, other.stream_);
    std::swap(pooled_, other.pooled_);
    return *this;
}

StreamMemory::~StreamMemory() {
    if (address_ == 0 || !driver_->here()) return;
    ContextScope scope(*driver_, context_);
    if (pooled_)
        driver_->MemFreeAsync(address_, stream_);
    else
        driver_->MemFree(address_);
}

Result<PinnedMemory> PinnedMemory::allocate(const Context& context, size_t bytes) {
    const Driver& driver = context.driver();
    ContextScope scope(context);
    WEFT_TRY(scope.take_status());
    PinnedMemory memory;
    WEFT_TRY(driver.check(
        driver.MemHostAlloc(&memory.data_, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
        "allocate {} bytes of pinned host memory (is the limit of locked memory, ulimit -l, reached?)", bytes));
    memory.driver_ = &driver;
    memory.context_ = context.handle();
    memory.bytes_ = bytes;
    WEFT_TRY(driver.check(driver.MemHostGetDevicePointer(&memory.address_, memory.data_, 0),
                          "map pinned host memory for device {}", context.device()));
    return memory;
}

Result<PinnedMemory> PinnedMemory::pin(const Context& context, void* data, size_t bytes) {
    const Driver& driver = context.driver();
    ContextScope scope(context);
    WEFT_TRY(scope.take_status());
    WEFT_TRY(
        driver.check(driver.MemHostRegister(data, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
                     "pin {} bytes of host memory (is the limit of locked memory, ulimit -l, reached?)", bytes));
    PinnedMemory memory;
    memory.driver_ = &driver;
    memory.context_ = context.handle();
    memory.data_ = data;
    memory.bytes_ = bytes;
    memory.borrowed_ = true;
    WEFT_TRY(driver.check(driver.MemHostGetDevicePointer(&memory.address_, data, 0),
                          "map pinned host memory for device {}", context.device()));
    return memory;
}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(context_, other.context_);
    std::swap(data_, other.data_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    std::swap(borrowed_, other.borrowed_);
    return *this;
}

PinnedMemory::~PinnedMemory() {
    if (data_ == nullptr || !driver_->here()) return;
    ContextScope scope(*driver_, context_);
    if (borrowed_)
        driver_->MemHostUnregister(data_);
    else
        driver_->MemFreeHost(data_);
}

Status copy_async(const Driver& driver, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return driver.check(driver.MemcpyAsync(to, from, bytes, stream), "copy {} bytes", bytes);
}

Status fill_async(const Driver& driver, CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
    return driver.check(driver.MemsetD8Async(to, value, bytes, stream), "fill {} bytes", bytes);
}

}  // namespace weft::internal::cuda
