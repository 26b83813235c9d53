#include "src/drivers/cuda/exportable_memory.hpp"

#include "src/drivers/cuda/device.hpp"

namespace weft::internal::cuda {

namespace {

// The devices that can access the memory of `device` if peer access is enabled.
Result<std::vector<int>> devices_that_reach(const Driver& driver, int device) {
    auto count = device_count(driver);
    if (!count) return count.take_status();
    std::vector<int> devices;
    for (int other = 0; other < *count; ++other) {
        if (other == device) continue;
        auto access = peer_access(driver, other, device);
        if (!access) return access.take_status();
        if (access->reachable) devices.push_back(other);
    }
    return devices;
}

}  // namespace

Result<ExportableMemory> ExportableMemory::allocate(const Context& context, size_t bytes, ExportMethod way) {
    ExportableMemory result;
    if (way == ExportMethod::ipc) {
        auto memory = DeviceMemory::allocate(context, bytes);
        if (!memory) return memory.take_status();
        result.plain_ = std::move(*memory);
        return result;
    }
    auto peers = devices_that_reach(context.driver(), context.device());
    if (!peers) return peers.take_status();
    auto memory = VmmMemory::allocate(context, bytes, *peers);
    if (!memory) return memory.take_status();
    result.vmm_ = std::move(*memory);
    return result;
}

}  // namespace weft::internal::cuda
