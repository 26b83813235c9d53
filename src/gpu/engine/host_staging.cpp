#include "src/gpu/engine/host_staging.hpp"

#include <algorithm>

#include "src/base/log.hpp"
#include "src/drivers/cuda/stream.hpp"

namespace weft::internal {

using cuda::ContextScope;
using cuda::Driver;
using cuda::PinnedMemory;
using cuda::RelaxedCapture;

namespace {

constexpr size_t room_step_bytes = size_t(1) << 20;
constexpr size_t region_alignment = 256;

uintptr_t address_of(const DeviceSpan& span) { return reinterpret_cast<uintptr_t>(span.address); }

}  // namespace

// No copy is in progress in the old memory.
Status HostStaging::make_room(size_t bytes) {
    if (bytes <= memory_.bytes()) return ok();
    bytes = (std::max(bytes, memory_.bytes() * 2) + room_step_bytes - 1) / room_step_bytes * room_step_bytes;
    pinned_ = {};
    memory_ = {};
    auto memory = ArenaMemory::allocate(bytes);
    if (!memory) return memory.take_status();
    memory_ = std::move(*memory);
    auto pinned = PinnedMemory::pin(*context_, memory_.data(), memory_.bytes());
    if (pinned)
        pinned_ = std::move(*pinned);
    else
        WEFT_LOG(info, mem, "copies of device memory go through memory that is not pinned: {}",
                 pinned.status().sentence());
    return ok();
}

// Buffers that overlap on the device overlap on the host.
void HostStaging::arrange(std::span<const DeviceSpan> reads, std::span<const DeviceSpan> writes) {
    regions_.clear();
    for (const auto& spans : {reads, writes})
        for (const DeviceSpan& span : spans)
            if (span.bytes > 0) regions_.push_back({address_of(span), address_of(span) + span.bytes, 0});
    std::sort(regions_.begin(), regions_.end(),
              [](const Region& one, const Region& other) { return one.begin < other.begin; });
    size_t last = 0;
    for (size_t i = 1; i < regions_.size(); ++i)
        if (regions_[i].begin < regions_[last].end)
            regions_[last].end = std::max(regions_[last].end, regions_[i].end);
        else
            regions_[++last] = regions_[i];
    if (!regions_.empty()) regions_.resize(last + 1);
    size_t at = 0;
    for (Region& region : regions_) {
        // With the same alignment as on the device.
        region.offset = at + region.begin % region_alignment;
        at = (region.offset + (region.end - region.begin) + region_alignment - 1) / region_alignment * region_alignment;
    }
}

void* HostStaging::at(const void* on_device) const {
    const auto address = reinterpret_cast<uintptr_t>(on_device);
    auto next = std::upper_bound(regions_.begin(), regions_.end(), address,
                                 [](uintptr_t one, const Region& region) { return one < region.begin; });
    if (next == regions_.begin() || address >= (--next)->end) return const_cast<void*>(on_device);
    return memory_.data() + next->offset + (address - next->begin);
}

Status HostStaging::begin(std::span<const DeviceSpan> reads, std::span<const DeviceSpan> writes, CUstream stream) {
    const Driver& driver = context_->driver();
    const ContextScope scope(*context_);
    arrange(reads, writes);
    {
        const RelaxedCapture relaxed(driver);
        WEFT_TRY(make_room(
            regions_.empty() ? 0 : regions_.back().offset + size_t(regions_.back().end - regions_.back().begin)));
    }
    writes_.assign(writes.begin(), writes.end());
    stream_ = stream;
    for (const DeviceSpan& span : reads)
        if (span.bytes > 0)
            WEFT_TRY(copy_async(driver, reinterpret_cast<CUdeviceptr>(at(span.address)), address_of(span), span.bytes,
                                stream));
    // It waits even if nothing is read, because earlier work of the stream may write what the call will write.
    return driver.check(driver.StreamSynchronize(stream), "finish what a stream does before a call");
}

Status HostStaging::end() {
    const Driver& driver = context_->driver();
    const ContextScope scope(*context_);
    for (const DeviceSpan& span : writes_)
        if (span.bytes > 0)
            WEFT_TRY(copy_async(driver, address_of(span), reinterpret_cast<CUdeviceptr>(at(span.address)), span.bytes,
                                stream_));
    return driver.check(driver.StreamSynchronize(stream_), "finish the copies of a call");
}

}  // namespace weft::internal
