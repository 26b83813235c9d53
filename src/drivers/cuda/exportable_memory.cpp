#include "src/drivers/cuda/exportable_memory.hpp"

#include "src/drivers/cuda/device.hpp"

namespace weft::internal::cuda {

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
