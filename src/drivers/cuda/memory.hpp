// memory.hpp: memory of a device, and host memory that devices reach.
#pragma once
#include <cstddef>
#include <utility>

#include "src/drivers/cuda/context.hpp"

namespace weft::internal::cuda {

// Of cuMemAlloc: other processes of the host can map it by cuIpc (ipc.hpp). Freeing it waits for the device, so it is
// kept while work runs that others wait for. Must not outlive its context.
class DeviceMemory {
  public:
    DeviceMemory() = default;
    static Result<DeviceMemory> allocate(const Context& context, size_t bytes);
    DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
    DeviceMemory& operator=(DeviceMemory&& other) noexcept;
    ~DeviceMemory();

    CUdeviceptr address() const { return address_; }
    void* data() const { return reinterpret_cast<void*>(address_); }  // not for the host to look into
    size_t bytes() const { return bytes_; }

  private:
    const Driver* driver_ = nullptr;
    CUcontext context_ = nullptr;
    CUdeviceptr address_ = 0;
    size_t bytes_ = 0;
};

// Page-locked and mapped for every device: allocated so, or memory of somebody else's made so while the owner lives.
class PinnedMemory {
  public:
    PinnedMemory() = default;
    static Result<PinnedMemory> allocate(const Context& context, size_t bytes);
    // `data` and `bytes` in whole pages; shared memory too.
    static Result<PinnedMemory> pin(const Context& context, void* data, size_t bytes);
    PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }
    PinnedMemory& operator=(PinnedMemory&& other) noexcept;
    ~PinnedMemory();

    void* data() const { return data_; }
    CUdeviceptr address() const { return address_; }  // for devices
    size_t bytes() const { return bytes_; }

  private:
    const Driver* driver_ = nullptr;
    CUcontext context_ = nullptr;
    void* data_ = nullptr;
    CUdeviceptr address_ = 0;
    size_t bytes_ = 0;
    bool borrowed_ = false;
};

// Enqueued; device and host memory alike, but host memory that is not pinned may make the call wait.
Status copy_async(const Driver& driver, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
Status fill_async(const Driver& driver, CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream);

}  // namespace weft::internal::cuda
