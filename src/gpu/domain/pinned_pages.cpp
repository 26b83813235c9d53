#include "src/gpu/domain/pinned_pages.hpp"

#include "src/base/per_process.hpp"

namespace weft::internal::cuda {

Result<std::shared_ptr<SharedAbortFlag>> SharedAbortFlag::of(const std::shared_ptr<Segment>& group,
                                                             const Context& context) {
    return shared_by_process<SharedAbortFlag>(group.get(), [&]() -> Result<std::shared_ptr<SharedAbortFlag>> {
        auto words = std::make_shared<SharedAbortFlag>();
        words->segment_ = group;
        // Rows of other hosts may have no memory.
        const size_t used = group->one_host() ? size_t(reinterpret_cast<std::byte*>(&group->row(group->ranks())) -
                                                       reinterpret_cast<std::byte*>(&group->header()))
                                              : offsetof(SegmentHeader, abort) + sizeof(AbortRecord),
                     page = page_bytes();
        WEFT_TRY(words->pinned_.pin(context, &group->header(), (used + page - 1) / page * page));
        return words;
    });
}

Result<CUdeviceptr> SharedAbortFlag::address_of(const void* in_row) const {
    auto address = pinned_.address();
    if (!address) return address;
    return *address + size_t(static_cast<const std::byte*>(in_row) - reinterpret_cast<std::byte*>(&segment_->header()));
}

Result<std::shared_ptr<HostFallbackMemory>> HostFallbackMemory::of(const PeerMemory& where, const Context& context) {
    return shared_by_process<HostFallbackMemory>(
        std::pair(where.process, where.inode), [&]() -> Result<std::shared_ptr<HostFallbackMemory>> {
            auto places = std::make_shared<HostFallbackMemory>();
            auto memory = map_peer_memory(where);
            if (!memory) return memory.take_status();
            places->memory_ = std::move(*memory);
            WEFT_TRY(places->pinned_.pin(context, places->memory_->data(), places->memory_->bytes()));
            return places;
        });
}

Status PinnedPages::pin(const Context& context, void* data, size_t bytes) {
    auto retained = Context::retain(context.driver(), context.device());
    if (!retained) return retained.take_status();
    context_ = std::move(*retained);
    auto pinned = PinnedMemory::pin(context, data, bytes);
    if (!pinned) return pinned.take_status();
    memory_ = std::move(*pinned);
    return ok();
}

Result<CUdeviceptr> PinnedPages::address() const {
    const Driver& driver = context_.driver();
    CUdeviceptr address = 0;
    WEFT_TRY(driver.check(driver.MemHostGetDevicePointer(&address, memory_.data(), 0),
                          "map pinned host memory for a device"));
    return address;
}

}  // namespace weft::internal::cuda
