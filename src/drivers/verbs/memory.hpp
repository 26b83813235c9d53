// memory.hpp: memory that a device may read and write.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "src/base/result.hpp"
#include "src/drivers/verbs/context.hpp"

namespace weft::internal::verbs {

// Queue pairs reach only the memory of their own domain. The context must outlive it. Thread-safe.
class ProtectionDomain {
  public:
    static Result<std::unique_ptr<ProtectionDomain>> make(const Context& context);
    ProtectionDomain(const ProtectionDomain&) = delete;
    ProtectionDomain& operator=(const ProtectionDomain&) = delete;
    ~ProtectionDomain();

    const Context& context() const { return context_; }
    abi::Domain* get() const { return domain_; }
    // Whether the device registers dma-buf: asked with an invalid descriptor.
    bool registers_dma_buf() const;

  private:
    ProtectionDomain(const Context& context, abi::Domain* domain) : context_(context), domain_(domain) {}
    const Context& context_;
    abi::Domain* const domain_;
};

struct DmaBuf {
    int fd = -1;          // may be closed afterwards: the kernel holds a reference
    uint64_t offset = 0;  // in the dma-buf
};

// Registered memory. The memory and the domain must outlive it, and no request may still use it. Move-only.
class MemoryRegion {
  public:
    // `access`: verbs::access. Relaxed ordering is left out if the library is too old for it: it is a wish.
    // verbs.memlock: the kernel may not pin so much. verbs.call otherwise. Takes microseconds to seconds.
    static Result<MemoryRegion> host(const ProtectionDomain& domain, void* memory, size_t bytes, int access);
    // Device memory. `address` is what requests call the first byte; with the offset it agrees within a page.
    static Result<MemoryRegion> dma_buf(const ProtectionDomain& domain, const DmaBuf& buffer, size_t bytes,
                                        uint64_t address, int access);
    MemoryRegion(MemoryRegion&& other) noexcept;
    MemoryRegion& operator=(MemoryRegion&& other) noexcept;
    ~MemoryRegion();

    uint32_t lkey() const { return region_->lkey; }
    uint32_t rkey() const { return region_->rkey; }
    size_t bytes() const { return bytes_; }

  private:
    MemoryRegion(const ProtectionDomain& domain, abi::Region* region, size_t bytes)
        : domain_(&domain), region_(region), bytes_(bytes) {}
    const ProtectionDomain* domain_;
    abi::Region* region_;
    size_t bytes_;
};

}  // namespace weft::internal::verbs
