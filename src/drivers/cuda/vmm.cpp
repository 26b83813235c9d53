#include "src/drivers/cuda/vmm.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace weft::internal::cuda {

namespace {

// Properties of memory that can be exported. It is RDMA-capable if the device supports that.
CUmemAllocationProp properties_of(const Driver& driver, int device, VmmExport way = VmmExport::descriptor) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    properties.requestedHandleTypes =
        way == VmmExport::fabric ? CU_MEM_HANDLE_TYPE_FABRIC : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    int rdma = 0;
    if (driver.DeviceGetAttribute(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device) ==
        CUDA_SUCCESS)
        properties.allocFlags.gpuDirectRDMACapable = rdma != 0;
    return properties;
}

// The driver needs an IMEX channel for fabric handles.
const char* fabric_advice(CUresult result) {
    return result == CUDA_ERROR_NOT_PERMITTED || result == CUDA_ERROR_NOT_SUPPORTED
               ? " as memory of an NVLink domain of several hosts (fabric handles need the nvidia-imex service on "
                 "every "
                 "host, and a channel that this process may open: /dev/nvidia-caps-imex-channels/channel0)"
               : "";
}

// The handle of the piece that is mapped at an address; 0: none. The handle is equal for all of a piece, and unique
// while the piece is mapped.
CUmemGenericAllocationHandle mapped_at(const Driver& driver, CUdeviceptr address) {
    CUmemGenericAllocationHandle handle = 0;
    if (driver.MemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address)) != CUDA_SUCCESS) return 0;
    driver.MemRelease(handle);
    return handle;
}

Result<size_t> page_of(const Driver& driver, CUdeviceptr address) {
    CUmemGenericAllocationHandle handle = 0;
    WEFT_TRY(driver.check(driver.MemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address)),
                          "find the piece of memory that is mapped at {:#x}", address));
    CUmemAllocationProp properties{};
    size_t bytes = 0;
    CUresult result = driver.MemGetAllocationPropertiesFromHandle(&properties, handle);
    if (result == CUDA_SUCCESS)
        result = driver.MemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    driver.MemRelease(handle);
    WEFT_TRY(driver.check(result, "query the page size of the memory at {:#x}", address));
    return bytes;
}

// The number of next pages in one direction that belong to a piece. A piece may have thousands of pages, so the step is
// doubled and then halved.
template <class Has>
size_t pages_that_have(size_t limit, Has&& has) {
    size_t known = 0, step = 1;
    while (known < limit && has(std::min(known + step, limit))) known = std::min(known + step, limit), step *= 2;
    for (; step > 0; step /= 2)
        if (known + step <= limit && has(known + step)) known += step;
    return known;
}

}  // namespace

Result<size_t> vmm_granularity(const Driver& driver, int device) {
    const CUmemAllocationProp properties = properties_of(driver, device);
    size_t bytes = 0;
    WEFT_TRY(driver.check(driver.MemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                          "query the page size of device {}", device));
    return bytes;
}

Result<VmmMemory> VmmMemory::allocate(const Context& context, size_t bytes, const std::vector<int>& peers,
                                      VmmExport way) {
    const Driver& driver = context.driver();
    Result<size_t> granularity = vmm_granularity(driver, context.device());
    if (!granularity) return granularity.take_status();
    VmmMemory memory;
    memory.driver_ = &driver;
    if (bytes > SIZE_MAX - *granularity)
        return fail(error::cuda_resources, "CUDA could not allocate {} bytes on device {}", bytes, context.device());
    memory.bytes_ = (std::max(bytes, size_t(1)) + *granularity - 1) / *granularity * *granularity;
    CUmemAllocationProp properties = properties_of(driver, context.device(), way);
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = driver.MemCreate(&handle, memory.bytes_, &properties, 0);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY && properties.allocFlags.gpuDirectRDMACapable) {
        properties.allocFlags.gpuDirectRDMACapable = 0;
        result = driver.MemCreate(&handle, memory.bytes_, &properties, 0);
    }
    WEFT_TRY(driver.check(result, "allocate {} bytes on device {}{}", memory.bytes_, context.device(),
                          way == VmmExport::fabric ? fabric_advice(result) : ""));
    memory.pieces_.push_back({handle, memory.bytes_});
    WEFT_TRY(memory.map(context, peers));
    return memory;
}

Result<VmmMemory> VmmMemory::import(const Context& context, std::span<const UnsharedFd> descriptors,
                                    std::span<const uint64_t> bytes) {
    const Driver& driver = context.driver();
    ContextScope scope(context);
    WEFT_TRY(scope.take_status());
    VmmMemory memory;
    memory.driver_ = &driver;
    for (size_t i = 0; i < descriptors.size(); ++i) {
        CUmemGenericAllocationHandle handle = 0;
        void* const descriptor = reinterpret_cast<void*>(static_cast<intptr_t>(descriptors[i].number()));
        WEFT_TRY(driver.check(
            driver.MemImportFromShareableHandle(&handle, descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            "import another process's device memory"));
        memory.pieces_.push_back({handle, size_t(bytes[i])});
        memory.bytes_ += size_t(bytes[i]);
    }
    WEFT_TRY(memory.map(context, {}));
    return memory;
}

Result<VmmMemory> VmmMemory::import_fabric(const Context& context, const FabricHandle& from, size_t bytes) {
    const Driver& driver = context.driver();
    ContextScope scope(context);
    WEFT_TRY(scope.take_status());
    CUmemFabricHandle fabric_handle;
    static_assert(sizeof fabric_handle == sizeof from);
    memcpy(&fabric_handle, from.data(), sizeof fabric_handle);
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result = driver.MemImportFromShareableHandle(&handle, &fabric_handle, CU_MEM_HANDLE_TYPE_FABRIC);
    WEFT_TRY(driver.check(result, "import another host's device memory{}", fabric_advice(result)));
    VmmMemory memory;
    memory.driver_ = &driver;
    memory.pieces_.push_back({handle, bytes});
    memory.bytes_ = bytes;
    WEFT_TRY(memory.map(context, {}));
    return memory;
}

Status VmmMemory::map(const Context& context, const std::vector<int>& peers) {
    context_ = context.handle();
    ContextScope scope(context);
    WEFT_TRY(scope.take_status());
    WEFT_TRY(driver_->check(driver_->MemAddressReserve(&address_, bytes_, 0, 0, 0), "reserve {} bytes of addresses",
                            bytes_));
    CUdeviceptr at = address_;
    for (Piece& piece : pieces_) {
        WEFT_TRY(driver_->check(driver_->MemMap(at, piece.bytes, 0, piece.handle, 0), "map {} bytes of device memory",
                                piece.bytes));
        piece.mapped = true;
        at += piece.bytes;
    }
    std::vector<CUmemAccessDesc> readers;
    // Access is granted to the devices that map the memory, not to the device that holds it.
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
    std::swap(pieces_, other.pieces_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

VmmMemory::~VmmMemory() {
    if (pieces_.empty() || !driver_->here()) return;
    if (context_ != nullptr) {
        ContextScope scope(*driver_, context_);
        CUdeviceptr at = address_;
        for (const Piece& piece : pieces_) {
            if (piece.mapped) driver_->MemUnmap(at, piece.bytes);
            at += piece.bytes;
        }
        if (address_ != 0) driver_->MemAddressFree(address_, bytes_);
    }
    for (const Piece& piece : pieces_) driver_->MemRelease(piece.handle);
}

Result<std::vector<VmmPiece>> vmm_pieces(const Driver& driver, CUdeviceptr address, size_t bytes, size_t most) {
    auto page = page_of(driver, address);
    if (!page) return page.take_status();
    std::vector<VmmPiece> pieces;
    const CUdeviceptr end = address + std::max(bytes, size_t(1));
    for (CUdeviceptr at = address; at < end;) {
        const CUmemGenericAllocationHandle handle = mapped_at(driver, at);
        CUdeviceptr range = 0;
        size_t range_bytes = 0;
        if (handle == 0)
            return fail(error::memory_bounds, "nothing is mapped at {:#x}, {} bytes after the beginning of the memory",
                        at, at - address);
        // The range is either the whole reserved range or the piece. In both cases no part of the piece lies outside.
        WEFT_TRY(
            driver.check(driver.MemGetAddressRange(&range, &range_bytes, at), "find the allocation around {:#x}", at));
        if (pieces.size() == most)
            return fail(error::gpu_registrations, "the memory consists of more than {} pieces, which is the most",
                        most);
        const CUdeviceptr own = at / *page * *page;
        const auto has = [&](CUdeviceptr there) { return mapped_at(driver, there) == handle; };
        const size_t first = own > range ? (own - range) / *page : 0,
                     last = range + range_bytes > own + *page ? (range + range_bytes - own) / *page - 1 : 0;
        const size_t before = pages_that_have(first, [&](size_t n) { return has(own - n * *page); }),
                     behind = pages_that_have(last, [&](size_t n) { return has(own + n * *page); });
        const CUdeviceptr begin = own - before * *page;
        pieces.push_back({begin, (before + 1 + behind) * *page});
        at = begin + pieces.back().bytes;
    }
    return pieces;
}

Result<bool> vmm_opened(const Driver& driver, std::span<const VmmPiece> pieces, int device) {
    const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, device};
    for (const VmmPiece& piece : pieces) {
        unsigned long long flags = 0;
        WEFT_TRY(driver.check(driver.MemGetAccess(&flags, &location, piece.address),
                              "find out whether device {} reaches the memory at {:#x}", device, piece.address));
        if (flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return false;
    }
    return true;
}

Result<UnsharedFd> export_handle(const Driver& driver, CUmemGenericAllocationHandle handle, const std::string& doing) {
    int fd = -1;
    const CUresult result = driver.MemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    UnsharedFd descriptor(Fd::adopt(result == CUDA_SUCCESS ? fd : -1));
    if (result != CUDA_SUCCESS) return driver.failure(result, doing);
    if (!descriptor)
        return fail(error::system_descriptors, "no descriptor for device memory: {}", no_descriptor_text(errno));
    return descriptor;
}

Result<FabricHandle> export_fabric(const Driver& driver, const VmmMemory& memory) {
    CUmemFabricHandle fabric_handle;
    const CUresult result =
        driver.MemExportToShareableHandle(&fabric_handle, memory.handle(), CU_MEM_HANDLE_TYPE_FABRIC, 0);
    WEFT_TRY(driver.check(result, "export device memory to the NVLink domain{}", fabric_advice(result)));
    FabricHandle handle;
    memcpy(handle.data(), &fabric_handle, sizeof fabric_handle);
    return handle;
}

Result<UnsharedFd> export_piece(const Driver& driver, CUdeviceptr address) {
    CUmemGenericAllocationHandle handle = 0;
    WEFT_TRY(driver.check(driver.MemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address)),
                          "find the piece of memory that is mapped at {:#x}", address));
    auto descriptor = export_handle(driver, handle,
                                    fmt::format("export the memory at {:#x} as a file descriptor (was it made for "
                                                "that, by cuMemCreate's requestedHandleTypes?)",
                                                address));
    driver.MemRelease(handle);
    return descriptor;
}

}  // namespace weft::internal::cuda
