// multicast.hpp: a multicast object of CUDA: memory of several devices behind one address. Kernels access it with
// multimem instructions, and the switch adds up loads from all devices and hands stores out to all of them.
// One process creates the object and exports it, and the others import it. Then every device is added, every device binds
// its memory, and every device maps the object. A step begins when all devices have ended the one before.
#pragma once
#include <cstddef>

#include "src/base/unshared_fd.hpp"
#include "src/drivers/cuda/vmm.hpp"

namespace weft::internal::cuda {

// One device's part in a multicast object. It must not outlive its context or the bound memory. Thread-bound.
class MulticastObject {
  public:
    MulticastObject() = default;
    // Whether the driver has the functions. The device's support is DeviceProperties::multicast.
    static bool has_functions(const Driver& driver);
    // The smallest size for `devices` devices that is at least `bytes`.
    static Result<size_t> size_for(const Driver& driver, int devices, size_t bytes);
    // For `devices` devices, at least two; bytes: of size_for(). cuda.call if the fabric manager does not run.
    static Result<MulticastObject> create(const Context& context, int devices, size_t bytes);
    // An object that another rank exported, of this process or another one. The descriptor may be closed afterwards.
    static Result<MulticastObject> import(const Context& context, const UnsharedFd& descriptor, size_t bytes);
    Result<UnsharedFd> export_descriptor() const;
    MulticastObject(MulticastObject&& other) noexcept { *this = std::move(other); }
    MulticastObject& operator=(MulticastObject&& other) noexcept;
    // Unbinds and unmaps. May wait for the device.
    ~MulticastObject();

    // Adds the context's device.
    Status add_device();
    // Binds all of the memory, whose size is the object's, to the added device. The driver waits here until all devices
    // have been added.
    Status bind(const VmmMemory& memory);
    // The same for a piece of VMM memory that begins at `address`, wherever it was allocated. It has the object's size.
    // The object keeps the memory until it is destroyed, also if it is unmapped and released meanwhile.
    Status bind_piece(CUdeviceptr address);
    // Maps the object for the device. All devices have bound their memory.
    Status map();
    // The address for multimem instructions, and for no others; 0: not mapped.
    CUdeviceptr address() const { return mapped_ ? address_ : 0; }
    size_t bytes() const { return bytes_; }

  private:
    Status bind_handle(CUmemGenericAllocationHandle memory);

    const Driver* driver_ = nullptr;
    CUcontext context_ = nullptr;
    int device_ = 0;
    CUmemGenericAllocationHandle handle_ = 0;
    size_t bytes_ = 0;
    CUmemGenericAllocationHandle piece_ = 0;  // of bind_piece()
    CUdeviceptr address_ = 0;
    bool bound_ = false, mapped_ = false;
};

}  // namespace weft::internal::cuda
