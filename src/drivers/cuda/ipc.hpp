// ipc.hpp: another process's cuMemAlloc memory, mapped here.
#pragma once
#include <cstddef>
#include <utility>

#include "src/drivers/cuda/context.hpp"

namespace weft::internal::cuda {

// What a process tells others about memory of its own: bytes, to be carried in the OOB store.
struct IpcExport {
    CUipcMemHandle handle;  // of the whole allocation
    size_t offset = 0;      // of the buffer in it
};
// Fails, which is normal, for memory of other kinds (VMM, pools, managed).
Result<IpcExport> export_ipc(const Driver& driver, CUdeviceptr address);

// An allocation can be mapped once a process and context: whoever needs several buffers of it keeps one mapping. It is
// to be closed before the owner frees the memory. Must not outlive its context.
class IpcMapping {
  public:
    IpcMapping() = default;
    // Not in the process that exported it: there the address itself serves.
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
