#include "src/gpu/engine/device_memory.hpp"

#include <algorithm>
#include <map>
#include <mutex>

#include "src/base/log.hpp"
#include "src/base/per_process.hpp"
#include "src/drivers/cuda/device.hpp"
#include "src/drivers/cuda/exportable_memory.hpp"
#include "src/drivers/cuda/stream.hpp"

namespace weft::internal {

using cuda::Context;
using cuda::Driver;
using cuda::ExportableMemory;
using cuda::RelaxedCapture;

namespace {

struct DeviceAllocation {
    Context context;  // must outlive the memory
    ExportableMemory memory;
    size_t bytes = 0;  // as requested; the memory has whole pages
};

struct DeviceAllocations {
    std::mutex mutex;
    std::map<CUdeviceptr, DeviceAllocation> by_address;
};
DeviceAllocations& allocations() {
    static PerProcess<DeviceAllocations> of_process;
    return of_process.get();
}

Status no_device(size_t bytes, const std::string& reason) {
    return fail(error::gpu_no_device, "weftMemAlloc cannot allocate {} bytes: {}; weftHostAlloc allocates host memory",
                bytes, reason);
}

}  // namespace

Result<void*> allocate_device_memory(size_t bytes) {
    auto driver = Driver::get();
    if (!driver) return no_device(bytes, driver.status().sentence());
    auto device = current_device(**driver);
    if (!device) return device.take_status();
    if (!*device) return no_device(bytes, "no device is current in this thread (cudaSetDevice makes one current)");
    const RelaxedCapture relaxed(**driver);
    DeviceAllocation allocation;
    auto context = Context::retain(**driver, **device);
    if (!context) return context.take_status();
    allocation.context = std::move(*context);
    auto properties = describe_device(**driver, **device);
    if (!properties) return properties.take_status();
    const auto allocate = [&](ExportableMemory::ExportMethod way) {
        return ExportableMemory::allocate(allocation.context, std::max(bytes, size_t(1)), way);
    };
    const bool descriptors = properties->vmm && properties->vmm_fd;
    auto memory =
        allocate(descriptors ? ExportableMemory::ExportMethod::descriptor : ExportableMemory::ExportMethod::ipc);
    if (!memory && memory.status().id() == error::cuda_call && descriptors) {
        WEFT_LOG(info, mem, "weftMemAlloc takes memory of cuMemAlloc: {}", memory.status().sentence());
        memory = allocate(ExportableMemory::ExportMethod::ipc);
    }
    if (!memory) return memory.take_status();
    allocation.memory = std::move(*memory);
    allocation.bytes = bytes;
    DeviceAllocations& all = allocations();
    const CUdeviceptr address = allocation.memory.address();
    const std::lock_guard lock(all.mutex);
    all.by_address[address] = std::move(allocation);
    return reinterpret_cast<void*>(address);
}

bool free_device_memory(void* address) {
    DeviceAllocations& all = allocations();
    DeviceAllocation freed;  // destroyed without the lock, because that may wait for the device
    {
        const std::lock_guard lock(all.mutex);
        const auto place = all.by_address.find(reinterpret_cast<CUdeviceptr>(address));
        if (place == all.by_address.end()) return false;
        freed = std::move(place->second);
        all.by_address.erase(place);
    }
    const RelaxedCapture relaxed(freed.context.driver());
    freed = {};
    return true;
}

std::span<const std::byte> own_device_memory(const void* address) {
    DeviceAllocations& all = allocations();
    const auto begin = reinterpret_cast<CUdeviceptr>(address);
    const std::lock_guard lock(all.mutex);
    const auto next = all.by_address.upper_bound(begin);
    if (next == all.by_address.begin()) return {};
    const DeviceAllocation& allocation = std::prev(next)->second;
    if (begin - allocation.memory.address() >= allocation.memory.bytes()) return {};
    return {static_cast<const std::byte*>(allocation.memory.data()), allocation.bytes};
}

}  // namespace weft::internal
