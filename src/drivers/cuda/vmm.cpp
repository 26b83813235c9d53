#include "src/drivers/cuda/vmm.hpp"

namespace weft::cuda {

namespace {

// Of memory that can be exported as a file descriptor. RDMA-capable wherever the device can: it costs nothing.
CUmemAllocationProp properties_of(const Driver& driver, int device) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    int rdma = 0;
    if (driver.DeviceGetAttribute(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device) ==
        CUDA_SUCCESS)
        properties.allocFlags.gpuDirectRDMACapable = rdma != 0;
    return properties;
}

Result<Fd> export_handle(const Driver& driver, CUmemGenericAllocationHandle handle) {
    int fd = -1;
    WEFT_TRY(driver.check(driver.MemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                          "export device memory"));
    return Fd(fd);
}

}  // namespace

Result<size_t> vmm_granularity(const Driver& driver, int device) {
    const CUmemAllocationProp properties = properties_of(driver, device);
    size_t bytes = 0;
    WEFT_TRY(driver.check(driver.MemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                          "tell the page size of device {}", device));
    return bytes;
}

Result<VmmMemory> VmmMemory::allocate(const Context& context, size_t bytes, const std::vector<int>& peers) {
    const Driver& driver = context.driver();
    Result<size_t> granularity = vmm_granularity(driver, context.device());
    if (!granularity) return granularity.take_status();
    VmmMemory memory;
    memory.driver_ = &driver;
    memory.bytes_ = (bytes + *granularity - 1) / *granularity * *granularity;
    const CUmemAllocationProp properties = properties_of(driver, context.device());
    WEFT_TRY(driver.check(driver.MemCreate(&memory.handle_, memory.bytes_, &properties, 0),
                          "allocate {} bytes on device {}", memory.bytes_, context.device()));
    WEFT_TRY(memory.map(context, peers));
    return memory;
}

Result<VmmMemory> VmmMemory::import(const Context& context, int fd, size_t bytes) {
    const Driver& driver = context.driver();
    VmmMemory memory;
    memory.driver_ = &driver;
    memory.bytes_ = bytes;
    WEFT_TRY(driver.check(
        driver.MemImportFromShareableHandle(&memory.handle_, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "import another process's device memory"));
    WEFT_TRY(memory.map(context, {}));
    return memory;
}

Status VmmMemory::map(const Context& context, const std::vector<int>& peers) {
    context_ = context.handle();
    ContextScope scope(context);
    WEFT_TRY(scope.take_status());
    WEFT_TRY(driver_->check(driver_->MemAddressReserve(&address_, bytes_, 0, 0, 0), "reserve {} bytes of addresses",
                            bytes_));
    WEFT_TRY(driver_->check(driver_->MemMap(address_, bytes_, 0, handle_, 0), "map {} bytes of device memory", bytes_));
    mapped_ = true;
    std::vector<CUmemAccessDesc> readers;
    // The mapping devices, not the one where the memory lies.
    const auto let = [&](int device) {
        CUmemAccessDesc access{};
        access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.location.id = device;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        readers.push_back(access);
    };
    let(context.device());
    for (int peer : peers)
        if (peer != context.device()) let(peer);
    return driver_->check(driver_->MemSetAccess(address_, bytes_, readers.data(), readers.size()),
                          "open memory for device {}{}", context.device(), readers.size() > 1 ? " and its peers" : "");
}

VmmMemory& VmmMemory::operator=(VmmMemory&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(context_, other.context_);
    std::swap(handle_, other.handle_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    std::swap(mapped_, other.mapped_);
    return *this;
}

VmmMemory::~VmmMemory() {
    if (handle_ == 0 || !driver_->here()) return;
    if (context_ != nullptr) {
        ContextScope scope(*driver_, context_);
        if (mapped_) driver_->MemUnmap(address_, bytes_);
        if (address_ != 0) driver_->MemAddressFree(address_, bytes_);
    }
    driver_->MemRelease(handle_);
}

Result<Fd> VmmMemory::exported() const { return export_handle(*driver_, handle_); }

Result<Fd> export_piece(const Driver& driver, CUdeviceptr address) {
    CUmemGenericAllocationHandle handle = 0;
    WEFT_TRY(driver.check(driver.MemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address)),
                          "find the piece of memory that is mapped at {:#x}", address));
    Result<Fd> fd = export_handle(driver, handle);
    driver.MemRelease(handle);
    return fd;
}

}  // namespace weft::cuda
