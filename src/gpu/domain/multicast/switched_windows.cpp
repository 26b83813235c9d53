#include "src/gpu/domain/multicast/switched_windows.hpp"

#include <algorithm>
#include <utility>

#include "src/base/log.hpp"
#include "src/drivers/cuda/pointer.hpp"
#include "src/drivers/cuda/stream.hpp"

namespace weft::internal::cuda {

namespace {

constexpr int creator = 0;
// A token's lower bits are an offset, in a window of up to 1 TiB.
constexpr int offset_bits = 40;

}  // namespace

SwitchedWindows::~SwitchedWindows() {
    const ContextScope scope(kernels_->context());
    const RelaxedCapture relaxed(kernels_->driver());
    windows_.clear();
}

SwitchedWindows::PiecePlace SwitchedWindows::begin(uint32_t number, const void* address, size_t bytes) {
    const ContextScope scope(kernels_->context());
    const RelaxedCapture relaxed(kernels_->driver());
    const Driver& driver = kernels_->driver();
    const auto facts = describe_pointer(driver, address);
    if (!facts || facts->kind != MemoryKind::vmm || bytes > size_t(1) << offset_bits) return {};
    const auto pieces = vmm_pieces(driver, reinterpret_cast<CUdeviceptr>(address), bytes, 1);
    if (!pieces) return {};
    SwitchedWindow& window = windows_[number];
    window.address = reinterpret_cast<uintptr_t>(address);
    window.bytes = bytes;
    window.piece = (*pieces)[0].address;
    window.piece_bytes = (*pieces)[0].bytes;
    return {window.piece_bytes, window.address - window.piece};
}

bool SwitchedWindows::advance(uint32_t number, std::vector<SwitchEntry>& entries) {
    const ContextScope scope(kernels_->context());
    const RelaxedCapture relaxed(kernels_->driver());
    SwitchedWindow& window = windows_[number];
    const bool failed =
        std::any_of(entries.begin(), entries.end(), [](const SwitchEntry& entry) { return entry.failed != 0; });
    if (failed || window.next == Step::works) {
        if (rank_ == creator)
            WEFT_LOG_RANK(rank_, info, mem, "window {} of {} bytes {} behind the switch", number, window.bytes,
                          failed ? "does not lie" : "lies");
        if (failed) windows_.erase(number);
        return false;
    }
    const Status done = take_step(window, entries);
    if (!done) WEFT_LOG_RANK(rank_, info, mem, "window {} cannot lie behind the switch: {}", number, done.sentence());
    window.next = Step(int(window.next) + 1);
    entries[size_t(rank_)] = {!done, window.post.entry()};
    return true;
}

Status SwitchedWindows::take_step(SwitchedWindow& window, const std::vector<SwitchEntry>& entries) const {
    switch (window.next) {
        case Step::create: {
            if (rank_ != creator) return ok();
            auto bytes = MulticastObject::size_for(kernels_->driver(), ranks_, window.piece_bytes);
            if (!bytes) return bytes.take_status();
            if (*bytes != window.piece_bytes)
                return fail(error::gpu_peer_access, "a multicast object has {} bytes, and the memory {}", *bytes,
                            window.piece_bytes);
            auto object = window.post.create(kernels_->context(), ranks_, *bytes);
            if (object) window.object = std::move(*object);
            return object.take_status();
        }
        case Step::add: {
            if (rank_ != creator) {
                auto object = fetch_multicast(kernels_->context(), creator, entries[creator].object);
                if (!object) return object.take_status();
                window.object = std::move(*object);
            }
            return window.object.add_device();
        }
        case Step::bind: window.post.withdraw(); return window.object.bind_piece(window.piece);
        case Step::map: return window.object.map();
        case Step::works: break;
    }
    return ok();
}

void SwitchedWindows::close(uint32_t number) {
    const auto window = windows_.find(number);
    if (window == windows_.end()) return;
    const ContextScope scope(kernels_->context());
    const RelaxedCapture relaxed(kernels_->driver());
    windows_.erase(window);
}

// In the order of numbers, so that all ranks find the same one of several around the bytes.
SwitchedWindows::SwitchedMemory SwitchedWindows::find(const void* address, size_t bytes) const {
    const auto place = reinterpret_cast<uintptr_t>(address);
    for (const auto& [number, window] : windows_) {
        if (window.next != Step::works || place < window.address || place - window.address > window.bytes ||
            bytes > window.bytes - (place - window.address))
            continue;
        return {uint64_t(number) << offset_bits | (place - window.address),
                reinterpret_cast<std::byte*>(window.object.address() + (place - window.piece))};
    }
    return {};
}

}  // namespace weft::internal::cuda
