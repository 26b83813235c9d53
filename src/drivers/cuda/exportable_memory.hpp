// exportable_memory.hpp: device memory that other processes of the host can map, by either of two methods.
#pragma once
#include "src/drivers/cuda/memory.hpp"
#include "src/drivers/cuda/vmm.hpp"

namespace weft::internal::cuda {

// Must not outlive its context.
class ExportableMemory {
  public:
    enum class ExportMethod : uint8_t {
        ipc,         // cuMemAlloc memory, mapped by cuIpc (ipc.hpp)
        descriptor,  // one piece of VMM memory, mapped by file descriptor (vmm.hpp), for all devices with peer access
    };
    ExportableMemory() = default;
    static Result<ExportableMemory> allocate(const Context& context, size_t bytes, ExportMethod way);

    ExportMethod way() const { return vmm_.address() ? ExportMethod::descriptor : ExportMethod::ipc; }
    CUdeviceptr address() const { return vmm_.address() ? vmm_.address() : plain_.address(); }
    void* data() const { return reinterpret_cast<void*>(address()); }                // the host cannot read it
    size_t bytes() const { return vmm_.address() ? vmm_.bytes() : plain_.bytes(); }  // whole pages of VMM memory

  private:
    VmmMemory vmm_;  // exactly one of the two
    DeviceMemory plain_;
};

}  // namespace weft::internal::cuda
