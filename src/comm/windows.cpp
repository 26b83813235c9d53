// windows.cpp: a communicator's windows, and its one-sided calls on them. docs/design/rma.md.
#include <sched.h>
#include <unistd.h>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/base/name_list.hpp"
#include "src/base/tombstones.hpp"
#include "src/comm/communicator.hpp"

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

Result<WindowPart> Communicator::open_window(uint32_t number, weftWindow& window) {
    if (!one_sided_) {
        window_links_ = std::make_unique<PeerLinks>(*segment_, rank_, link_settings(windows_name));
        one_sided_ = std::make_unique<OneSided>(
            *segment_, rank_,
            OneSided::Settings{planner_.agreed().direct != 0, planner_.agreed().cma != 0, &planner_.cpu_kernels()},
            [this](int peer, PeerLink& link) { return window_links_->connect(peer, link); },
            [this](int peer) { return window_links_->called_by(peer); });
    }
    const bool on_device = window.bytes > 0 && window.space == Space::device;
    // A rank without memory does not know yet whether the window is on devices, so it opens a host window.
    auto part = one_sided_->open(number, on_device ? nullptr : window.address, on_device ? 0 : window.bytes,
                                 *planner_.heap_used());
    // Otherwise the other ranks would wait for this rank.
    if (!part) return die(part.take_status());
    if (on_device && window.unfit) window.unfit = device_->windows().fits(window.address, window.bytes, window.mapped);
    part->memory = window.bytes == 0 ? WindowPart::nothing
                   : !window.unfit   ? WindowPart::unfit
                   : on_device       ? WindowPart::device
                                     : WindowPart::host;
    part->address = reinterpret_cast<uint64_t>(window.address);
    part->bytes = window.bytes;
    return part;
}

Status Communicator::open_device_window(uint32_t number, const weftWindow& window, WindowPart& part) {
    return device_->windows().open(number, window.address, window.bytes, part);
}

void Communicator::complete_window(uint32_t number, std::span<const WindowPart> parts) {
    one_sided_->complete(number, parts);
    host_windows_.fetch_add(1, std::memory_order_relaxed);
}

void Communicator::complete_device_window(uint32_t number) {
    one_sided_->close(number);
    device_windows_.fetch_add(1, std::memory_order_relaxed);
}

void Communicator::begin_to_close_window(uint32_t number) {
    one_sided_->close(number);
    if (device_) device_->windows().begin_to_close(number);
}

void Communicator::give_up_window(uint32_t number) {
    begin_to_close_window(number);
    for (const int64_t until = now_us() + untouched_patience_us; !window_closed(number); usleep(1000)) {
        if (now_us() < until) continue;
        WEFT_LOG_RANK(rank_, warn, mem, "continues although {} may still map our part of a window: do not free it",
                      ranks_text(device_->windows().missing(number)));
        return;
    }
}

Status Communicator::pause_for_device(uint32_t number, int64_t since_us) {
    WEFT_TRY(usable());
    if (has_windows() && serve()) return ok();
    if (since_us > 0 && options_.timeout_ms > 0 && now_us() - since_us > options_.timeout_ms * 1000)
        return die(fail(error::timeout_window,
                        "rank {} waited {:.1f} s for the memory of a window to be mapped or unmapped between its "
                        "device and {}; the deadline (WEFT_TIMEOUT_MS) is {} ms: check whether kernels wait for ranks "
                        "that have not made this call",
                        rank_, double(now_us() - since_us) / 1e6, ranks_text(device_->windows().missing(number)),
                        options_.timeout_ms));
    usleep(50);
    return ok();
}

// The one-sided call from the arguments of the active call.
Result<OneSidedCall> Communicator::one_sided_call() const {
    using RmaOp = OneSidedCall::RmaOp;
    const Access& access = *call_.access;
    const bool on_device = call_.operation.space == Space::device;
    const Collective collective = call_.operation.collective;
    OneSidedCall call{collective == Collective::put      ? RmaOp::put
                      : collective == Collective::get    ? RmaOp::get
                      : collective == Collective::signal ? RmaOp::signal
                                                         : RmaOp::wait};
    call.peer = call_.operation.root;
    if (access.window) {
        WEFT_TRY(check_living(*access.window));
        if (access.window->on_device != on_device)
            return fail(error::memory_kind, "the window is {}, and localbuff (without one, the stream) is {}",
                        access.window->on_device ? "device memory" : "host memory",
                        on_device ? "the device's" : "the host's: pass device memory and a CUDA stream");
        call.window = access.window->number;
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
    call.offset = access.offset;
    call.bytes = call_.operation.bytes();
    call.data = static_cast<std::byte*>(call.kind == RmaOp::get ? call_.receive : const_cast<void*>(call_.send));
    call.signal = access.signal;
    call.waits = access.waits;
    return call;
}

Status Communicator::begin_access() {
    // A put or get of no bytes has no buffer, so its window decides the memory space.
    const weftWindow* const window = call_.access->window;
    if (window && call_.operation.count == 0 && !call_.queued && check_living(*window) && window->on_device) {
        call_.operation.space = Space::device;
        return begin_access_on_device();
    }
    auto call = one_sided_call();
    if (!call) return call.take_status();
    WEFT_TRY(one_sided_->begin(*call));
    prepared_ = nullptr;
    in_access_ = true;
    waiting_.seen_here();
    watchdog_.begin();
    return ok();
}

// Like a message, a one-sided call has no sequence number.
Status Communicator::begin_access_on_device() {
    auto call = one_sided_call();
    if (!call) return call.take_status();
    const DeviceAccess access{*call, call_.stream, call_.settings};
    if (Status prepared = device_->windows().prepare(access); !prepared)
        return prepared.code() == weftRemoteError ? die(std::move(prepared)) : refuse_or_die(std::move(prepared));
    prepared_ = nullptr;
    on_device_ = true;
    if (Status launched = device_->windows().launch(access); !launched) return die(std::move(launched));
    return ok();
}

Status Communicator::begin_flush() {
    WEFT_TRY(usable());
    call_ = {};
    call_limit_ = {};
    WEFT_TRY(one_sided_->begin({OneSidedCall::RmaOp::flush}));
    prepared_ = nullptr;
    in_access_ = true;
    waiting_.seen_here();
    watchdog_.begin();
    return ok();
}

Progress Communicator::advance_access() {
    const Progress progress = one_sided_->advance();
    if (progress == Progress::failed) [[unlikely]] {
        failure_ = die(one_sided_->take_failure());
    } else if (progress != Progress::blocked) {
        waiting_.stir();
    }
    return progress;
}

Status Communicator::pause_for_access(bool may_sleep) {
    const bool beside = has_messages();
    const RankSet* waits_for = &one_sided_->missing();
    if (beside) {
        waited_for_ = one_sided_->missing();
        waited_for_.insert(messages_->exchange().missing());
        waits_for = &waited_for_;
    }
    const bool sockets = one_sided_->networked() || (beside && messages_->exchange().networked());
    // A put does not wake a rank that sleeps in poll().
    if (one_sided_->connecting() || (beside && messages_->exchange().connecting())) may_sleep = may_sleep && !sockets;
    if (!(sockets ? waiting_.pause_on_sockets(*waits_for, may_sleep, add_descriptors_)
                  : waiting_.pause(*waits_for, may_sleep))) [[likely]]
        return ok();
    waiting_.tell(one_sided_->awaited());
    Limit limit = call_limit_;
    if (beside) limit.timeout_ms = earlier(limit.timeout_ms, message_limit_.timeout_ms);
    watch(limit);
    Status trouble = watchdog_.look_at_partners(
        *waits_for, waiting_.silence_us(),
        [&](int other) {
            return one_sided_->missing().contains(other) ? one_sided_->owed_by(other)
                                                         : messages_->exchange().owed_by(other);
        },
        "one-sided calls");
    if (trouble) return ok();
    waiting_.stir();
    return die(std::move(trouble));
}

void Communicator::await_untouched() {
    if (!one_sided_) return;
    // Pairs with the one in Signals::enter().
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const int64_t until = now_us() + untouched_patience_us;
    for (const int peer : segment_->locals())
        while (peer != rank_ && one_sided_->touched_by(peer) && segment_->alive(peer)) {
            if (now_us() > until) {
                WEFT_LOG_RANK(rank_, warn, coll,
                              "continues although rank {} (pid {}) does not move and may still use our windows", peer,
                              segment_->row(peer).pid);
                return;
            }
            sched_yield();
        }
}

}  // namespace weft::internal
