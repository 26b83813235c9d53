#include "tests/device/program.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>

namespace weft::internal::test {

void demand(CUresult result) {
    if (result != CUDA_SUCCESS) throw std::runtime_error("CUDA says " + std::to_string(int(result)));
}
void demand(weftResult_t result, weftComm_t comm) {
    if (result != weftSuccess)
        throw std::runtime_error(std::to_string(int(result)) + ": " + weftGetLastError(comm) + " / " +
                                 weftGetLastError(nullptr));
}

int devices() {
    int count = 0;
    demand(cuInit(0));
    demand(cuDeviceGetCount(&count));
    return count;
}

CUcontext context_of(int device) {
    struct Retained {
        std::mutex mutex;  // ranks on threads ask at once
        std::map<int, CUcontext> contexts;
        ~Retained() {
            for (const auto& [device, context] : contexts) cuDevicePrimaryCtxRelease(device);
        }
    };
    static Retained retained;
    std::lock_guard lock(retained.mutex);
    CUcontext& context = retained.contexts[device];
    if (!context) {
        demand(cuInit(0));
        demand(cuDevicePrimaryCtxRetain(&context, device));
    }
    return context;
}

Current::Current(int device) { demand(cuCtxPushCurrent(context_of(device))); }
Current::~Current() {
    CUcontext popped;
    cuCtxPopCurrent(&popped);
}

DeviceBuffer::DeviceBuffer(int device, size_t bytes, size_t offset, Kind kind)
    : device_(device), offset_(offset), kind_(kind) {
    const Current current(device);
    const size_t all = bytes + offset + 1;
    void* address = nullptr;
    switch (kind) {
        case Kind::plain: demand(cuMemAlloc(&base_, all)); break;
        case Kind::managed: demand(cuMemAllocManaged(&base_, all, CU_MEM_ATTACH_GLOBAL)); break;
        case Kind::pool:
            demand(cuMemAllocAsync(&base_, all, nullptr));
            demand(cuStreamSynchronize(nullptr));
            break;
        case Kind::weft:
            demand(weftMemAlloc(&address, all));
            base_ = reinterpret_cast<CUdeviceptr>(address);
            break;
        case Kind::pieces:
        case Kind::closed_pieces: map_pieces(all); break;
        case Kind::host: base_ = reinterpret_cast<CUdeviceptr>(malloc(all)); break;
        case Kind::host_shared:
            demand(weftHostAlloc(&address, all));
            base_ = reinterpret_cast<CUdeviceptr>(address);
            break;
    }
}
void DeviceBuffer::map_pieces(size_t bytes) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
    if (kind_ == Kind::pieces) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    pieces_bytes_ = (bytes + piece_bytes - 1) / piece_bytes * piece_bytes;
    demand(cuMemAddressReserve(&base_, 2 * pieces_bytes_, 0, 0, 0));
    for (size_t at = 0; at < pieces_bytes_; at += piece_bytes) {
        CUmemGenericAllocationHandle handle;
        demand(cuMemCreate(&handle, piece_bytes, &properties, 0));
        demand(cuMemMap(base_ + at, piece_bytes, 0, handle, 0));
        demand(cuMemRelease(handle));
    }
    const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    demand(cuMemSetAccess(base_, pieces_bytes_, &access, 1));
}
DeviceBuffer::~DeviceBuffer() {
    const Current current(device_);
    if (kind_ == Kind::weft || kind_ == Kind::host_shared) {
        (void)weftMemFree(reinterpret_cast<void*>(base_));
    } else if (pieces_bytes_ > 0) {
        for (size_t at = 0; at < pieces_bytes_; at += piece_bytes) cuMemUnmap(base_ + at, piece_bytes);
        cuMemAddressFree(base_, 2 * pieces_bytes_);
    } else if (kind_ == Kind::pool) {
        cuMemFreeAsync(base_, nullptr);
        cuStreamSynchronize(nullptr);
    } else if (kind_ == Kind::host) {
        free(reinterpret_cast<void*>(base_));
    } else {
        cuMemFree(base_);
    }
}
void DeviceBuffer::write(const void* from, size_t bytes) const {
    if (on_host(kind_))
        return void(std::copy_n(static_cast<const std::byte*>(from), bytes, static_cast<std::byte*>(data())));
    const Current current(device_);
    if (bytes > 0) demand(cuMemcpy(base_ + offset_, reinterpret_cast<CUdeviceptr>(from), bytes));
}
Bytes DeviceBuffer::read(size_t bytes) const {
    Bytes all(bytes);
    if (on_host(kind_)) return std::copy_n(static_cast<const std::byte*>(data()), bytes, all.data()), all;
    const Current current(device_);
    if (bytes > 0) demand(cuMemcpy(reinterpret_cast<CUdeviceptr>(all.data()), base_ + offset_, bytes));
    return all;
}

Stream::Stream(int on, unsigned flags) : device(on) {
    const Current current(device);
    demand(cuStreamCreateWithPriority(&handle, flags, 0));
}
Stream::~Stream() { cuStreamDestroy(handle); }
void Stream::finish() const { demand(cuStreamSynchronize(handle)); }

}  // namespace weft::internal::test
