#include "src/comm/windows.hpp"

#include <sched.h>
#include <unistd.h>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/base/name_list.hpp"
#include "src/base/process_token.hpp"
#include "src/base/tombstones.hpp"
#include "src/segment/liveness.hpp"

namespace weft::internal {

namespace {

constexpr uint64_t windows_name = 0x87c37b91114253d5u;  // of connection info, different from those of messages
constexpr int64_t untouched_patience_us = 2'000'000;

}  // namespace

weftWindow* make_window(const weftComm* comm, void* address, size_t bytes) {
    auto window = std::make_unique<weftWindow>();
    window->process = process_token();
    window->comm = comm;
    window->address = address;
    window->bytes = bytes;
    return keep_tombstone(std::move(window));
}

Status check_window(const weftWindow* window, const weftComm* comm) {
    const uint64_t magic = magic_of(window);
    if (magic == weftWindow::destroyed) return fail(error::argument_handle, "the window was deregistered before");
    if (magic != weftWindow::living && magic != weftWindow::making && magic != weftWindow::unmade)
        return fail(error::argument_handle, "{} is not a window: weftCommWindowRegister makes them",
                    static_cast<const void*>(window));
    if (window->process != process_token())
        return fail(error::usage_forked, "the window was made before fork(); a child process makes its own");
    if (window->comm != comm) return fail(error::argument_handle, "the window belongs to another communicator");
    return ok();
}

Status check_living(const weftWindow& window) {
    const uint64_t magic = window.magic.load(std::memory_order_acquire);
    if (magic == weftWindow::living) return ok();
    if (magic == weftWindow::destroyed) return fail(error::argument_handle, "the window was deregistered before");
    return fail(error::window_none, "the window is not registered: {}",
                magic == weftWindow::making ? "its registration has not ended yet"
                                            : "its registration failed, and that call or its group said why");
}

Result<WindowPart> Windows::open(uint32_t number, weftWindow& window) {
    Planner& planner = context_.planner;
    if (!host_) {
        links_ = std::make_unique<PeerLinks>(*context_.segment, context_.rank, context_.link_settings(windows_name));
        host_ = std::make_unique<OneSided>(
            *context_.segment, context_.rank,
            OneSided::Settings{{.arenas = planner.agreed().direct != 0, .cma = planner.agreed().cma != 0},
                               &planner.cpu_kernels(),
                               &planner.user_memory()},
            [this](int peer, PeerLink& link) { return links_->connect(peer, link); },
            [this](int peer) { return links_->called_by(peer); }, [this](int peer) { links_->end(peer); });
    }
    const bool on_device = window.bytes > 0 && window.space == Space::device;
    // A rank without memory does not know yet whether the window is on devices, so it opens a host window.
    auto part =
        host_->open(number, on_device ? nullptr : window.address, on_device ? 0 : window.bytes, *planner.heap_used());
    if (!part) return part;
    if (on_device && window.unfit)
        window.unfit = context_.device->windows().fits(window.address, window.bytes, window.mapped);
    part->memory = window.bytes == 0 ? WindowPart::nothing
                   : !window.unfit   ? WindowPart::unfit
                   : on_device       ? WindowPart::device
                                     : WindowPart::host;
    part->address = reinterpret_cast<uint64_t>(window.address);
    part->bytes = window.bytes;
    return part;
}

void Windows::complete(uint32_t number, std::span<const WindowPart> parts) {
    host_->complete(number, parts);
    host_windows_.fetch_add(1, std::memory_order_relaxed);
}

void Windows::complete_on_device(uint32_t number) {
    host_->close(number, false);
    device_windows_.fetch_add(1, std::memory_order_relaxed);
}

void Windows::begin_to_close(uint32_t number, bool messages) {
    host_->close(number, messages);
    if (context_.device) context_.device->windows().begin_to_close(number);
}

void Windows::give_up(uint32_t number) {
    begin_to_close(number, true);
    for (const int64_t until = now_us() + untouched_patience_us; !closed(number); usleep(1000)) {
        if (now_us() < until) continue;
        WEFT_LOG_RANK(context_.rank, warn, mem,
                      "continues although {} may still map our part of a window: do not free it",
                      ranks_text(missing_on_device(number)));
        return;
    }
}

Space Windows::space_of(const Call& call, const AccessCall& access) const {
    const weftWindow* const window = access.access ? access.access->window : nullptr;
    const bool decides = window && access.bytes == 0 && !call.queued && check_living(*window);
    return decides && window->on_device ? Space::device : call.space;
}

Result<OneSidedCall> Windows::resolve(const AccessCall& call, Space space) const {
    OneSidedCall resolved{call.kind};
    if (!call.access) return resolved;
    const Access& access = *call.access;
    const bool on_device = space == Space::device;
    resolved.peer = call.peer;
    if (access.window) {
        WEFT_TRY(check_living(*access.window));
        if (access.window->on_device != on_device)
            return fail(error::memory_kind, "the window is {}, and localbuff (without one, the stream) is {}",
                        access.window->on_device ? "device memory" : "host memory",
                        on_device ? "the device's" : "the host's: pass device memory and a CUDA stream");
        resolved.window = access.window->number;
    } else if ((on_device ? device_windows_ : host_windows_).load(std::memory_order_relaxed) == 0) {
        const bool others = (on_device ? host_windows_ : device_windows_).load(std::memory_order_relaxed) > 0;
        return fail(error::window_none,
                    "no window{} was registered on this communicator (weftCommWindowRegister), and signals belong to "
                    "windows{}",
                    !others     ? ""
                    : on_device ? " of device memory"
                                : " of host memory",
                    others && !on_device ? ": for windows of device memory pass a CUDA stream" : "");
    }
    resolved.offset = access.offset;
    resolved.bytes = call.bytes;
    resolved.data = static_cast<std::byte*>(call.data);
    resolved.signal = access.signal;
    resolved.waits = access.waits;
    return resolved;
}

void Windows::await_untouched() {
    if (!host_) return;
    // Pairs with the one in Signals::enter().
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const int64_t until = now_us() + untouched_patience_us;
    const Segment& segment = *context_.segment;
    for (const int peer : segment.locals())
        while (peer != context_.rank && host_->touched_by(peer) && Liveness(segment).alive(peer)) {
            if (now_us() > until) {
                WEFT_LOG_RANK(context_.rank, warn, coll,
                              "continues although rank {} (pid {}) does not move and may still use our windows", peer,
                              segment.row(peer).pid);
                return;
            }
            sched_yield();
        }
}

}  // namespace weft::internal
