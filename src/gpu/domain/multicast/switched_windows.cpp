#include "src/gpu/domain/multicast/switched_windows.hpp"

#include <algorithm>
#include <utility>

#include "src/base/log.hpp"
#include "src/drivers/cuda/stream.hpp"

namespace weft::internal::cuda {

SwitchedWindows::~SwitchedWindows() {
    const ContextScope scope(kernels_->context());
    const RelaxedCapture relaxed(kernels_->driver());
    windows_.clear();
}

SwitchedWindows::PiecePlace SwitchedWindows::begin(uint32_t number, const void* address, size_t bytes) {
    const ContextScope scope(kernels_->context());
    const RelaxedCapture relaxed(kernels_->driver());
    const auto piece = SwitchedPiece::around(kernels_->driver(), address, bytes);
    if (!piece) return {};
    const auto place = reinterpret_cast<uintptr_t>(address);
    windows_.insert_or_assign(number, SwitchedWindow{place, bytes, SwitchedPiece(*piece)});
    return {piece->bytes, place - piece->address};
}

bool SwitchedWindows::advance(uint32_t number, std::vector<SwitchEntry>& entries) {
    const ContextScope scope(kernels_->context());
    const RelaxedCapture relaxed(kernels_->driver());
    SwitchedWindow& window = windows_[number];
    const bool failed =
        std::any_of(entries.begin(), entries.end(), [](const SwitchEntry& entry) { return entry.failed != 0; });
    if (failed || window.next == steps_end) {
        if (rank_ == 0)
            WEFT_LOG_RANK(rank_, info, mem, "window {} of {} bytes {} behind the switch", number, window.bytes,
                          failed ? "does not lie" : "lies");
        if (failed) windows_.erase(number);
        return false;
    }
    const Status done =
        window.part.take(SwitchStep(window.next), kernels_->context(), ranks_, rank_, entries[0].object);
    if (!done) WEFT_LOG_RANK(rank_, info, mem, "window {} cannot lie behind the switch: {}", number, done.sentence());
    ++window.next;
    entries[size_t(rank_)] = {!done, window.part.entry()};
    return true;
}

void SwitchedWindows::close(uint32_t number) {
    const auto window = windows_.find(number);
    if (window == windows_.end()) return;
    const ContextScope scope(kernels_->context());
    const RelaxedCapture relaxed(kernels_->driver());
    windows_.erase(window);
}

// In the order of numbers, so that all ranks find the same one of several around the bytes.
SwitchedMemory SwitchedWindows::find(const void* address, size_t bytes) const {
    const auto place = reinterpret_cast<uintptr_t>(address);
    for (const auto& [number, window] : windows_) {
        if (window.next != steps_end || place < window.address || place - window.address > window.bytes ||
            bytes > window.bytes - (place - window.address))
            continue;
        return {uint64_t(number) << switched_offset_bits | (place - window.address),
                reinterpret_cast<std::byte*>(window.part.address() + (place - window.part.piece().address))};
    }
    return {};
}

}  // namespace weft::internal::cuda
