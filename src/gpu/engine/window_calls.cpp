#include "src/gpu/engine/window_calls.hpp"

#include <algorithm>

#include "src/drivers/cuda/pointer.hpp"

namespace weft::internal {

using cuda::AccessArguments;
using cuda::ContextScope;
using cuda::LaunchShape;
using cuda::ranks_max;
using cuda::signal_waits_max;
using cuda::SwitchedWindows;

namespace {

// A block copies about 20 bytes per nanosecond and takes microseconds to begin.
constexpr uint64_t bytes_of_block = 64 << 10;

}  // namespace

Status WindowCalls::fits(const void* address, size_t bytes, bool mapped) const {
    if (!gpu_.exports_buffers)
        return fail(error::window_unreachable,
                    "windows of device memory support up to {} ranks of one host whose devices reach each other's "
                    "memory, but {}",
                    ranks_max,
                    gpu_.copies             ? gpu_.copies_reason
                    : gpu_.layout.hosts > 1 ? "the ranks are on several hosts"
                                            : gpu_.domain->fallback_reason());
    if (mapped) return ok();
    const ContextScope scope(gpu_.kernels().context());
    const auto facts = describe_pointer(*gpu_.device.driver, address);
    Status why;
    if (facts && facts->kind == cuda::MemoryKind::vmm) {
        why = gpu_.buffer_registry->fits(address, bytes);
        if (why) return ok();
    }
    return fail(error::window_unsuitable,
                "{} is device memory that other ranks' kernels cannot reach: register memory of cudaMalloc "
                "(cuMemAlloc) or weftMemAlloc, or VMM memory that all devices may access and that can be "
                "exported; no pool or managed memory{}{}",
                address, why ? "" : ": ", why.sentence());
}

DeviceWindows& WindowCalls::windows() {
    if (!windows_) {
        windows_ = std::make_unique<DeviceWindows>(*gpu_.group, gpu_.rank, *gpu_.buffer_registry);
        gpu_.domain->memory().bind(arguments_);
    }
    return *windows_;
}

Status WindowCalls::open(uint32_t number, void* address, size_t bytes, WindowPart& part) {
    if (bytes == 0) return ok();
    WEFT_TRY(windows().open(number, address, bytes, part));
    if (SwitchedWindows* const switched = gpu_.domain->switched_windows()) {
        const SwitchedWindows::PiecePlace place = switched->begin(number, address, bytes);
        part.piece_bytes = place.piece_bytes;
        part.piece_offset = place.offset;
    }
    return ok();
}

Result<bool> WindowCalls::reach(uint32_t number, std::span<const WindowPart> parts) {
    return windows().reach(number, parts);
}

std::vector<int> WindowCalls::missing(uint32_t number) const {
    return windows_ ? windows_->missing(number) : std::vector<int>();
}

bool WindowCalls::switches(uint32_t number, std::span<const WindowPart> parts) {
    if (!gpu_.domain || !gpu_.domain->switched_windows()) return false;
    const bool alike = std::all_of(parts.begin(), parts.end(), [&](const WindowPart& part) {
        return part.piece_bytes != 0 && part.piece_bytes == parts[0].piece_bytes &&
               part.piece_offset == parts[0].piece_offset;
    });
    if (!alike) gpu_.domain->switched_windows()->close(number);
    return alike;
}

bool WindowCalls::advance_switch(uint32_t number, std::vector<cuda::SwitchEntry>& entries) {
    return gpu_.domain->switched_windows()->advance(number, entries);
}

// After a failure kernels of peers may still use the switch. The domain closes the window when all ranks have left.
void WindowCalls::begin_to_close(uint32_t number) {
    if (gpu_.domain && gpu_.domain->switched_windows() && !gpu_.group->aborted())
        gpu_.domain->switched_windows()->close(number);
    if (windows_) windows_->begin_to_close(number);
}

bool WindowCalls::closed(uint32_t number) { return !windows_ || windows_->closed(number); }

Status WindowCalls::prepare(const DeviceAccess& access) {
    const OneSidedCall& call = access.call;
    using RmaOp = OneSidedCall::RmaOp;
    if (call.kind == RmaOp::put || call.kind == RmaOp::get) {
        WEFT_TRY(check_inside(call, windows_->bytes(call.window, call.peer)));
        if (call.bytes > 0) WEFT_TRY(check_overlap(call, windows_->at(call.window, call.peer) + call.offset));
    }
    if (call.kind != RmaOp::wait && gpu_.group->row(call.peer).state.load(std::memory_order_acquire) == RankState::left)
        return fail(error::rank_left, "{} left the communicator: its part of the window is gone",
                    gpu_.group->name_of(call.peer))
            .about({.rank = call.peer, .peer = gpu_.rank});
    merge_waits(call.waits, waits_);
    return launcher_.take_stream(access.stream);
}

Status WindowCalls::launch(const DeviceAccess& access) {
    const OneSidedCall& call = access.call;
    return launcher_.in_order(access.stream, access.settings, [&](std::optional<int> priority) {
        LaunchShape shape{
            .blocks = 1, .threads = 32, .remote_sync_domain = gpu_.kernels().sync_domains(), .priority = priority};
        arguments_.timeout_ns = launcher_.timeout_of(access.settings);
        arguments_.bytes = 0;
        arguments_.signal = -1;
        arguments_.waits.count = 0;
        return call.kind == OneSidedCall::RmaOp::wait
                   ? enqueue_waits(shape, access.stream)
                   : enqueue_transfer(call, shape, access.stream,
                                      gpu_.layout.block_rules.limits_for(access.settings.blocks).most);
    });
}

Status WindowCalls::enqueue_waits(const LaunchShape& shape, void* stream) {
    AccessArguments& a = arguments_;
    for (size_t first = 0; first < waits_.size(); first += signal_waits_max) {
        a.launch = launcher_.next_launch();
        a.waits.count = int32_t(std::min(waits_.size() - first, size_t(signal_waits_max)));
        for (int i = 0; i < a.waits.count; ++i) {
            const SignalWait& wait = waits_[first + size_t(i)];
            a.waits.each[i] = {wait.peer, wait.signal, wait.count};
        }
        WEFT_TRY(launcher_.enqueue_last(gpu_.kernels().access(), shape, stream, a));
    }
    return ok();
}

Status WindowCalls::enqueue_transfer(const OneSidedCall& call, LaunchShape shape, void* stream, int blocks_max) {
    AccessArguments& a = arguments_;
    a.peer = call.peer;
    a.signal = call.signal;
    a.bytes = call.bytes;
    if (call.bytes > 0) {
        std::byte* const there = windows_->at(call.window, call.peer) + call.offset;
        const bool puts = call.kind == OneSidedCall::RmaOp::put;
        a.from = puts ? call.data : there;
        a.to = puts ? there : call.data;
        shape.threads = unsigned(gpu_.layout.threads);
        shape.blocks = unsigned(std::clamp<uint64_t>(call.bytes / bytes_of_block, 1, uint64_t(blocks_max)));
    }
    a.launch = launcher_.next_launch();
    return launcher_.enqueue_last(gpu_.kernels().access(), shape, stream, a);
}

}  // namespace weft::internal
