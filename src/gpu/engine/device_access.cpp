// device_access.cpp: windows of device memory, and one-sided calls on them: one kernel per call (docs/design/rma.md).
#include <algorithm>

#include "src/gpu/engine/gpu_engine_state.hpp"

namespace weft::internal {

using cuda::AccessArguments;
using cuda::ContextScope;
using cuda::LaunchShape;
using cuda::ranks_max;
using cuda::signal_waits_max;

namespace {

// A block copies about 20 bytes per nanosecond and takes microseconds to begin.
constexpr uint64_t bytes_of_block = 64 << 10;

}  // namespace

Status GpuEngine::fits_window(const void* address, size_t bytes, bool mapped) const {
    const State& s = *state_;
    if (!s.exports_buffers)
        return fail(error::window_unreachable,
                    "windows of device memory support up to {} ranks of one host whose devices reach each other's "
                    "memory, but {}",
                    ranks_max,
                    s.copies                     ? s.why_copies()
                    : s.layout.hosts > 1         ? "the ranks are on several hosts"
                    : s.layout.ranks > ranks_max ? fmt::format("there are {}", s.layout.ranks)
                                                 : s.domain->fallback_reason());
    if (mapped) return ok();
    const ContextScope scope(s.kernels->context());
    const auto facts = describe_pointer(*s.driver, address);
    Status why;
    if (facts && facts->kind == cuda::MemoryKind::vmm) {
        why = s.buffer_registry->fits(address, bytes);
        if (why) return ok();
    }
    return fail(error::window_unsuitable,
                "{} is device memory that other ranks' kernels cannot reach: register memory of cudaMalloc "
                "(cuMemAlloc) or weftMemAlloc, or VMM memory that all devices may access and that can be "
                "exported; no pool or managed memory{}{}",
                address, why ? "" : ": ", why.sentence());
}

Status GpuEngine::open_window(uint32_t number, void* address, size_t bytes, WindowPart& part) {
    return bytes > 0 ? state_->own_windows().open(number, address, bytes, part) : ok();
}

std::vector<int> GpuEngine::window_missing(uint32_t number) const {
    return state_->windows ? state_->windows->missing(number) : std::vector<int>();
}

DeviceWindows& GpuEngine::State::own_windows() {
    if (!windows) {
        windows = std::make_unique<DeviceWindows>(*group, rank, *buffer_registry);
        domain->memory().bind(access_arguments);
    }
    return *windows;
}

Result<bool> GpuEngine::reach_window(uint32_t number, std::span<const WindowPart> parts) {
    return state_->own_windows().reach(number, parts);
}

void GpuEngine::begin_to_close_window(uint32_t number) {
    if (state_->windows) state_->windows->begin_to_close(number);
}

bool GpuEngine::window_closed(uint32_t number) { return !state_->windows || state_->windows->closed(number); }

bool GpuEngine::idle() const { return !state_->domain || !state_->domain->launches().working(); }

Status GpuEngine::prepare_access(const DeviceAccess& access) {
    State& s = *state_;
    const OneSidedCall& call = access.call;
    using RmaOp = OneSidedCall::RmaOp;
    if (call.kind == RmaOp::put || call.kind == RmaOp::get) {
        WEFT_TRY(check_inside(call, s.windows->bytes(call.window, call.peer)));
        if (call.bytes > 0) WEFT_TRY(check_overlap(call, s.windows->at(call.window, call.peer) + call.offset));
    }
    if (call.kind != RmaOp::wait && s.group->row(call.peer).state.load(std::memory_order_acquire) == RankState::left)
        return fail(error::rank_left, "{} left the communicator: its part of the window is gone",
                    s.group->name_of(call.peer))
            .about({.rank = call.peer, .peer = s.rank});
    merge_waits(call.waits, s.waits);
    return s.take_stream(access.stream);
}

Status GpuEngine::launch_access(const DeviceAccess& access) {
    State& s = *state_;
    const OneSidedCall& call = access.call;
    const auto stream = static_cast<CUstream>(access.stream);
    ContextScope scope(s.kernels->context());
    WEFT_TRY(scope.take_status());
    auto priority = s.priority(access.settings.priority);
    if (!priority) return priority.take_status();
    WEFT_TRY(s.domain->launches().order(stream, s.stream));
    AccessArguments& a = s.access_arguments;
    LaunchShape shape{
        .blocks = 1, .threads = 32, .remote_sync_domain = s.kernels->sync_domains(), .priority = *priority};
    a.timeout_ns = s.timeout_of(access.settings);
    a.bytes = 0;
    a.signal = -1;
    a.wait_count = 0;
    if (call.kind == OneSidedCall::RmaOp::wait) {
        for (size_t first = 0; first < s.waits.size(); first += signal_waits_max) {
            a.launch = ++s.launches;
            a.wait_count = int32_t(std::min(s.waits.size() - first, size_t(signal_waits_max)));
            for (int i = 0; i < a.wait_count; ++i) {
                const SignalWait& wait = s.waits[first + size_t(i)];
                a.waits[i] = {wait.peer, wait.signal, wait.count};
            }
            WEFT_TRY(s.enqueue(s.kernels->access(), shape, stream, &a));
        }
        return s.domain->launches().note(stream, s.stream);
    }
    a.peer = call.peer;
    a.signal = call.signal;
    a.bytes = call.bytes;
    if (call.bytes > 0) {
        std::byte* const there = s.windows->at(call.window, call.peer) + call.offset;
        const bool puts = call.kind == OneSidedCall::RmaOp::put;
        a.from = puts ? call.data : there;
        a.to = puts ? there : call.data;
        shape.threads = unsigned(s.layout.threads);
        shape.blocks = unsigned(std::clamp<uint64_t>(call.bytes / bytes_of_block, 1, uint64_t(s.layout.blocks_max)));
    }
    a.launch = ++s.launches;
    WEFT_TRY(s.enqueue(s.kernels->access(), shape, stream, &a));
    return s.domain->launches().note(stream, s.stream);
}

}  // namespace weft::internal
