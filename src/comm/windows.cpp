// windows.cpp: a communicator's windows, and its one-sided calls on them. src/README.md, "Windows".
#include <sched.h>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/comm/communicator.hpp"
#include "src/comm/quarantine.hpp"

namespace weft {

namespace {

constexpr uint64_t windows_name = 0x87c37b91114253d5u;  // of letters, apart from those of messages
constexpr int64_t untouched_patience_us = 2'000'000;

}  // namespace

weftWindow* make_window(const weftComm* comm, void* address, size_t bytes) {
    auto window = std::make_unique<weftWindow>();
    window->process = process_token();
    window->comm = comm;
    window->address = address;
    window->bytes = bytes;
    return keep_for_ever(std::move(window));
}

Status check_window(const weftWindow* window, const weftComm* comm) {
    const uint64_t magic = magic_of(window);
    if (magic == weftWindow::destroyed) return fail(weftInvalidArgument, "the window was deregistered before");
    if (magic != weftWindow::living && magic != weftWindow::making && magic != weftWindow::unmade)
        return fail(weftInvalidArgument, "{} is not a window: weftCommWindowRegister makes them",
                    static_cast<const void*>(window));
    if (window->process != process_token())
        return fail(weftInvalidUsage, "the window was made before fork(); a child process makes its own");
    if (window->comm != comm) return fail(weftInvalidArgument, "the window is another communicator's");
    return ok();
}

Status check_living(const weftWindow& window) {
    const uint64_t magic = window.magic.load(std::memory_order_acquire);
    if (magic == weftWindow::living) return ok();
    if (magic == weftWindow::destroyed) return fail(weftInvalidArgument, "the window was deregistered before");
    return fail(weftInvalidUsage, "the window is not there: {}",
                magic == weftWindow::making ? "its registration has not ended yet"
                                            : "its registration failed, as that call or its group said");
}

Result<WindowPart> Communicator::open_window(uint32_t number, void* address, size_t bytes) {
    if (!one_sided_) {
        window_links_ = std::make_unique<Links>(*group_, rank_, link_settings(windows_name));
        one_sided_ = std::make_unique<OneSided>(
            *group_, rank_,
            OneSided::Settings{planner_.agreed().direct != 0, planner_.agreed().cross_memory != 0, &planner_.movers()},
            [this](int peer, PeerLink& link) { return window_links_->connect(peer, link); },
            [this](int peer) { return window_links_->called_by(peer); });
    }
    auto part = one_sided_->open(number, address, bytes, *planner_.heap_used());
    // The others would wait for this rank.
    if (!part) return die(part.take_status());
    return part;
}

Status Communicator::begin_access() {
    const Access& access = *call_.access;
    if (!one_sided_)
        return fail(weftInvalidUsage,
                    "no window was registered on this communicator (weftCommWindowRegister), and signals come with "
                    "windows");
    using Kind = OneSidedCall::Kind;
    const Collective collective = call_.operation.collective;
    OneSidedCall call{collective == Collective::put      ? Kind::put
                      : collective == Collective::get    ? Kind::get
                      : collective == Collective::signal ? Kind::signal
                                                         : Kind::wait};
    call.peer = call_.operation.root;
    if (access.window) {
        WEFT_TRY(check_living(*access.window));
        call.window = access.window->number;
    }
    call.offset = access.offset;
    call.bytes = call_.operation.bytes();
    call.data = static_cast<std::byte*>(call.kind == Kind::get ? call_.receive : const_cast<void*>(call_.send));
    call.signal = access.signal;
    call.waits = access.waits;
    WEFT_TRY(one_sided_->begin(call));
    prepared_ = nullptr;
    in_access_ = true;
    waiting_.seen_here();
    watchdog_.begin();
    return ok();
}

Status Communicator::begin_flush() {
    WEFT_TRY(usable());
    call_ = {};
    call_limit_ = {};
    WEFT_TRY(one_sided_->begin({OneSidedCall::Kind::flush}));
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
        missing_both_ = one_sided_->missing();
        missing_both_.insert(messages_->exchange().missing());
        waits_for = &missing_both_;
    }
    const bool sockets = one_sided_->networked() || (beside && messages_->exchange().networked());
    // Letters wake nobody who sleeps in the kernel's poll.
    if (one_sided_->connecting() || (beside && messages_->exchange().connecting())) may_sleep = may_sleep && !sockets;
    if (!(sockets ? waiting_.pause_on_sockets(*waits_for, may_sleep, add_descriptors_)
                  : waiting_.pause(*waits_for, may_sleep))) [[likely]]
        return ok();
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
    for (const int peer : group_->locals())
        while (peer != rank_ && one_sided_->touched_by(peer) && group_->alive(peer)) {
            if (now_us() > until) {
                WEFT_LOG_RANK(rank_, warn, coll,
                              "goes on although rank {} (pid {}) does not move and may still be at our windows", peer,
                              group_->row(peer).pid);
                return;
            }
            sched_yield();
        }
}

}  // namespace weft
