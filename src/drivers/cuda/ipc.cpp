#include "src/drivers/cuda/ipc.hpp"

namespace weft::internal::cuda {

Result<IpcExport> export_ipc(const Driver& driver, CUdeviceptr address) {
    CUdeviceptr base = 0;
    size_t bytes = 0;
    WEFT_TRY(
        driver.check(driver.MemGetAddressRange(&base, &bytes, address), "find the allocation around {:#x}", address));
    IpcExport result;
    // Some drivers refuse the handle of an interior address, and others take it for the base.
    WEFT_TRY(driver.check(driver.IpcGetMemHandle(&result.handle, base), "export the memory at {:#x} to other processes",
                          base));
    result.offset = address - base;
    return result;
}

Result<IpcMapping> IpcMapping::open(const Context& context, const IpcExport& source) {
    const Driver& driver = context.driver();
    ContextScope scope(context);
    WEFT_TRY(scope.take_status());
    IpcMapping mapping;
    WEFT_TRY(driver.check(driver.IpcOpenMemHandle(&mapping.base_, source.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                          "map another process's memory on device {} (containers need a common IPC namespace)",
                          context.device()));
    mapping.driver_ = &driver;
    mapping.context_ = context.handle();
    mapping.offset_ = source.offset;
    return mapping;
}

IpcMapping& IpcMapping::operator=(IpcMapping&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(context_, other.context_);
    std::swap(base_, other.base_);
    std::swap(offset_, other.offset_);
    return *this;
}

IpcMapping::~IpcMapping() {
    if (base_ == 0 || !driver_->here()) return;
    ContextScope scope(*driver_, context_);
    driver_->IpcCloseMemHandle(base_);
}

}  // namespace weft::internal::cuda
