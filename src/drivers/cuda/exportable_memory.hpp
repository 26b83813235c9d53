// exportable_memory.hpp: device memory that other processes of the host can map, in one way or the other.
#pragma once
#include "src/drivers/cuda/memory.hpp"
#include "src/drivers/cuda/vmm.hpp"

namespace weft::internal::cuda {

// Must not outlive its context.
class ExportableMemory {
  public:
    enum class ExportMethod : uint8_t {
        ipc,  // of cuMemAlloc: by cuIpc (ipc.hpp)
        descriptor,  // VMM memory in one piece: by a file descriptor (vmm.hpp); every device of the process that can reach it may
    };
    ExportableMemory() = default;
    static Result<ExportableMemory> allocate(const Context& context, size_t bytes, ExportMethod way);

    ExportMethod way() const { return vmm_.address() ? ExportMethod::descriptor : ExportMethod::ipc; }
    CUdeviceptr address() const { return vmm_.address() ? vmm_.address() : plain_.address(); }
    void* data() const { return reinterpret_cast<void*>(address()); }                // not for the host to look into
    size_t bytes() const { return vmm_.address() ? vmm_.bytes() : plain_.bytes(); }  // VMM memory's: of whole pages

  private:
    VmmMemory vmm_;  // or
    DeviceMemory plain_;
};

}  // namespace weft::internal::cuda
