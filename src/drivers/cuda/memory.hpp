// memory.hpp: owners of device memory and of host memory that devices can access.
#pragma once
#include <cstddef>
#include <utility>

#include "src/drivers/cuda/context.hpp"

namespace weft::internal::cuda {

// Memory of cuMemAlloc, which other processes of the host can map by cuIpc (ipc.hpp). Freeing waits for the device, so
// memory must be kept while running work has waiters. Must not outlive its context.
class DeviceMemory {
  public:
    DeviceMemory() = default;
    static Result<DeviceMemory> allocate(const Context& context, size_t bytes);
    DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
    DeviceMemory& operator=(DeviceMemory&& other) noexcept;
    ~DeviceMemory();

    CUdeviceptr address() const { return address_; }
    void* data() const { return reinterpret_cast<void*>(address_); }  // the host cannot read it
    size_t bytes() const { return bytes_; }

  private:
    const Driver* driver_ = nullptr;
    CUcontext context_ = nullptr;
    CUdeviceptr address_ = 0;
    size_t bytes_ = 0;
};

// Memory for work of one stream, from before its first use there to after its last one. If the driver or the device has
// no pools, freeing waits for the device. Must not outlive its context.
class StreamMemory {
  public:
    StreamMemory() = default;
    // The context is current.
    static Result<StreamMemory> allocate(const Context& context, size_t bytes, CUstream stream);
    StreamMemory(StreamMemory&& other) noexcept { *this = std::move(other); }
    StreamMemory& operator=(StreamMemory&& other) noexcept;
    ~StreamMemory();

    void* data() const { return reinterpret_cast<void*>(address_); }  // the host cannot read it
    bool pooled() const { return pooled_; }                           // freeing does not wait

  private:
    const Driver* driver_ = nullptr;
    CUcontext context_ = nullptr;
    CUdeviceptr address_ = 0;
    CUstream stream_ = nullptr;
    bool pooled_ = false;
};

// Page-locked host memory that is mapped for every device: either allocated here, or existing memory that is registered
// while the owner lives.
class PinnedMemory {
  public:
    PinnedMemory() = default;
    static Result<PinnedMemory> allocate(const Context& context, size_t bytes);
    // `data` and `bytes` are whole pages. Shared memory is allowed.
    static Result<PinnedMemory> pin(const Context& context, void* data, size_t bytes);
    PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }
    PinnedMemory& operator=(PinnedMemory&& other) noexcept;
    ~PinnedMemory();

    void* data() const { return data_; }
    CUdeviceptr address() const { return address_; }  // the device address
    size_t bytes() const { return bytes_; }

  private:
    const Driver* driver_ = nullptr;
    CUcontext context_ = nullptr;
    void* data_ = nullptr;
    CUdeviceptr address_ = 0;
    size_t bytes_ = 0;
    bool borrowed_ = false;
};

// Both are enqueued and work on device and host memory. Host memory that is not pinned may block the call.
Status copy_async(const Driver& driver, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
Status fill_async(const Driver& driver, CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream);

}  // namespace weft::internal::cuda
