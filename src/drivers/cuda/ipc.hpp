// ipc.hpp: cuMemAlloc memory of another process, mapped in this process.
#pragma once
#include <cstddef>
#include <utility>

#include "src/drivers/cuda/context.hpp"

namespace weft::internal::cuda {

// The export of a process's memory. Its bytes travel in the OOB store.
struct IpcExport {
    CUipcMemHandle handle;  // of the whole allocation
    size_t offset = 0;      // of the buffer in the allocation
};
// Fails for other kinds of memory (VMM, pool, managed), which is normal.
Result<IpcExport> export_ipc(const Driver& driver, CUdeviceptr address);

// An allocation can be mapped once per process and context, so users of several of its buffers share one mapping. Close
// it before the owner frees the memory. Must not outlive its context.
class IpcMapping {
  public:
    IpcMapping() = default;
    // Not for the process that exported the memory, which uses the address itself.
    static Result<IpcMapping> open(const Context& context, const IpcExport& source);
    IpcMapping(IpcMapping&& other) noexcept { *this = std::move(other); }
    IpcMapping& operator=(IpcMapping&& other) noexcept;
    ~IpcMapping();

    explicit operator bool() const { return base_ != 0; }
    CUdeviceptr base() const { return base_; }               // of the allocation
    CUdeviceptr address() const { return base_ + offset_; }  // of the buffer

  private:
    const Driver* driver_ = nullptr;
    CUcontext context_ = nullptr;
    CUdeviceptr base_ = 0;
    size_t offset_ = 0;
};

}  // namespace weft::internal::cuda
