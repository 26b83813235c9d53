#include "src/drivers/verbs/memory.hpp"

#include <cerrno>
#include <utility>

#include "src/drivers/verbs/numbers.hpp"
#include "src/drivers/verbs/refusal.hpp"

namespace weft::internal::verbs {

Result<std::unique_ptr<ProtectionDomain>> ProtectionDomain::make(const Context& context) {
    errno = 0;
    abi::Domain* domain = context.functions().ibv_alloc_pd(context.get());
    if (domain == nullptr) return refused(context, "a protection domain", 0, errno);
    return std::unique_ptr<ProtectionDomain>(new ProtectionDomain(context, domain));
}

ProtectionDomain::~ProtectionDomain() { context_.functions().ibv_dealloc_pd(domain_); }

bool ProtectionDomain::registers_dma_buf() const {
    const abi::Functions& functions = context_.functions();
    if (functions.ibv_reg_dmabuf_mr == nullptr) return false;
    errno = 0;
    abi::Region* region = functions.ibv_reg_dmabuf_mr(domain_, 0, 4'096, 0, -1, access::local_write);
    if (region != nullptr) return functions.ibv_dereg_mr(region), true;
    return errno != EOPNOTSUPP && errno != EPROTONOSUPPORT && errno != ENOSYS;
}

Result<MemoryRegion> MemoryRegion::host(const ProtectionDomain& domain, void* memory, size_t bytes, int access) {
    const abi::Functions& functions = domain.context().functions();
    errno = 0;
    abi::Region* region = nullptr;
    if ((access & access::relaxed_ordering) && functions.ibv_reg_mr_iova2)
        region = functions.ibv_reg_mr_iova2(domain.get(), memory, bytes, uintptr_t(memory), unsigned(access));
    else
        region = functions.ibv_reg_mr(domain.get(), memory, bytes, access & ~access::relaxed_ordering);
    if (region == nullptr)
        return refused(domain.context(),
                       fmt::format("to register {} bytes at {} with access {:#x}", bytes, memory, access), bytes,
                       errno);
    return MemoryRegion(domain, region, bytes);
}

Result<MemoryRegion> MemoryRegion::dma_buf(const ProtectionDomain& domain, const DmaBuf& buffer, size_t bytes,
                                           uint64_t address, int access) {
    const abi::Functions& functions = domain.context().functions();
    if (functions.ibv_reg_dmabuf_mr == nullptr)
        return fail(error::verbs_call, "this libibverbs registers no dma-buf; it must be 1.12 or newer");
    errno = 0;
    abi::Region* region = functions.ibv_reg_dmabuf_mr(domain.get(), buffer.offset, bytes, address, buffer.fd, access);
    if (region == nullptr)
        return refused(domain.context(),
                       fmt::format("to register {} bytes of device memory at {:#x} by dma-buf", bytes, address), bytes,
                       errno);
    return MemoryRegion(domain, region, bytes);
}

MemoryRegion::MemoryRegion(MemoryRegion&& other) noexcept
    : domain_(other.domain_), region_(std::exchange(other.region_, nullptr)), bytes_(other.bytes_) {}

MemoryRegion& MemoryRegion::operator=(MemoryRegion&& other) noexcept {
    std::swap(domain_, other.domain_);
    std::swap(region_, other.region_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

MemoryRegion::~MemoryRegion() {
    if (region_ != nullptr) domain_->context().functions().ibv_dereg_mr(region_);
}

}  // namespace weft::internal::verbs
