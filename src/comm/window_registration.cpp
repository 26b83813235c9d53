#include "src/comm/window_registration.hpp"

#include <unistd.h>

#include <algorithm>

#include "src/base/clock.hpp"
#include "src/base/name_list.hpp"

namespace weft::internal {

std::shared_ptr<WindowRegistration> WindowRegistration::open(weftComm* comm, weftWindow* window) {
    return std::make_shared<WindowRegistration>(comm, window, true);
}

std::shared_ptr<WindowRegistration> WindowRegistration::close(weftComm* comm, weftWindow* window) {
    return std::make_shared<WindowRegistration>(comm, window, false);
}

Status WindowRegistration::begin() { return opens_ ? begin_opening() : begin_closing(); }

// Other ranks may access our part as soon as they have received our entry.
Status WindowRegistration::begin_opening() {
    Status begun = [&]() -> Status {
        WEFT_TRY(communicator().usable());
        number_ = windows().next_number();
        auto part = windows().open(number_, *window_);
        if (!part) return communicator().die(part.take_status());
        open_ = true;
        windows().count();
        parts_.resize(size_t(communicator().ranks()));
        reached_.resize(parts_.size());
        parts_[size_t(communicator().rank())] = *part;
        return tell();
    }();
    if (!begun) unmake();
    return begun;
}

// A rank announces the end only after its requests were answered and its kernels have ended.
Status WindowRegistration::begin_closing() {
    WEFT_TRY(check_living(*window_));
    number_ = window_->number;
    on_device_ = window_->on_device;
    if (Status usable = communicator().usable(); !usable) {
        if (!communicator().dead()) return usable;
        windows().await_untouched();
        if (on_device_) communicator().context().finish_device();
        windows().give_up(number_);
        stage_ = Stage::done;
        finish();
        return ok();
    }
    parts_.resize(size_t(communicator().ranks()));
    parts_[size_t(communicator().rank())].number = number_;
    reached_.resize(parts_.size());
    if (on_device_) return wait_for_device(Stage::draining), ok();
    stage_ = Stage::flushing;
    return communicator().begin({.kind = AccessCall{}});
}

template <class Word>
Status WindowRegistration::tell(std::vector<Word>& all) {
    static_assert(sizeof(Word) % sizeof(uint64_t) == 0);
    return communicator().begin(gather_entries(opens_ ? Purpose::window : Purpose::windows_end, communicator().rank(),
                                               all.data(), sizeof(Word)));
}

Status WindowRegistration::tell() {
    stage_ = Stage::telling;
    return tell(parts_);
}

void WindowRegistration::wait_for_device(Stage stage) {
    stage_ = stage;
    since_us_ = now_us();
}

Progress WindowRegistration::advance() {
    switch (stage_) {
        case Stage::done: return Progress::done;
        case Stage::draining:
        case Stage::reaching:
        case Stage::unmapping: return advance_on_device();
        default: return advance_telling();
    }
}

Progress WindowRegistration::advance_telling() {
    const Progress progress = communicator().advance();
    if (progress == Progress::failed) failure_ = communicator().take_failure();
    if (progress != Progress::done) return progress;
    (void)communicator().end();
    if (stage_ == Stage::telling) return have_announced();
    if (stage_ == Stage::placing) return have_placed();
    if (stage_ == Stage::agreeing) return agree();
    if (stage_ == Stage::switching) return advance_switch();
    if (stage_ == Stage::parting) return end();
    failure_ = tell();
    return failure_ ? Progress::moved : Progress::failed;
}

Progress WindowRegistration::have_announced() {
    if (!opens_) return close();
    if (Status unlike = check_parts(); !unlike) return refuse(std::move(unlike));
    for (const WindowPart& part : parts_) on_device_ |= part.memory == WindowPart::device;
    if (!on_device_) return finish(), Progress::done;
    // Until here no memory was exported, so a refusal needs no unmapping.
    placed_ = true;
    WindowPart& own = parts_[size_t(communicator().rank())];
    window_->unfit = windows().open_on_device(number_, *window_, own);
    if (!window_->unfit) own.memory = WindowPart::unfit;
    stage_ = Stage::placing;
    failure_ = tell(parts_);
    return failure_ ? Progress::moved : Progress::failed;
}

Progress WindowRegistration::have_placed() {
    if (Status unlike = check_parts(); !unlike) return refuse(std::move(unlike));
    wait_for_device(Stage::reaching);
    return Progress::moved;
}

Progress WindowRegistration::close() {
    for (const WindowPart& part : parts_)
        if (part.number != number_) {
            failure_ = communicator().die(
                fail(error::mismatch_window,
                     "rank {} deregisters window {} of the communicator, and rank {} window {}: deregister windows in "
                     "the same order on every rank",
                     communicator().rank(), number_, &part - parts_.data(), part.number)
                    .about({.rank = int32_t(&part - parts_.data()), .peer = communicator().rank()}));
            return Progress::failed;
        }
    windows().begin_to_close(number_, !communicator().calls().messages().idle());
    if (!on_device_) return end();
    wait_for_device(Stage::unmapping);
    return Progress::moved;
}

// All ranks see the same parts, so all decide alike. The rank with the unfit memory gives the reason.
Status WindowRegistration::check_parts() {
    const WindowPart *host = nullptr, *device = nullptr;
    for (const WindowPart& part : parts_) {
        const auto rank = &part - parts_.data();
        if (part.memory == WindowPart::unfit)
            return !window_->unfit ? std::move(window_->unfit)
                                   : fail(error::window_unsuitable,
                                          "the memory of rank {} cannot be in a window (its error says why): no rank "
                                          "has registered the window",
                                          rank)
                                         .about({.rank = int32_t(rank)});
        if (part.memory == WindowPart::host && !host) host = &part;
        if (part.memory == WindowPart::device && !device) device = &part;
    }
    if (!host || !device) return ok();
    return fail(error::window_unsuitable,
                "rank {} registers host memory and rank {} device memory: all ranks that register memory must "
                "register one kind",
                host - parts_.data(), device - parts_.data());
}

Progress WindowRegistration::advance_on_device() {
    if (stage_ == Stage::draining) {
        if (!communicator().context().device->idle()) return Progress::blocked;
        failure_ = tell();
        return failure_ ? Progress::moved : Progress::failed;
    }
    if (stage_ == Stage::unmapping) {
        if (!windows().closed(number_)) return Progress::blocked;
        stage_ = Stage::parting;
        failure_ = tell(reached_);
        return failure_ ? Progress::moved : Progress::failed;
    }
    auto all = windows().reach(number_, parts_);
    if (all && !*all) return Progress::blocked;
    if (!all) window_->unfit = all.take_status();
    reached_[size_t(communicator().rank())] = window_->unfit ? 1 : 0;
    stage_ = Stage::agreeing;
    failure_ = tell(reached_);
    return failure_ ? Progress::moved : Progress::failed;
}

Progress WindowRegistration::agree() {
    const auto without = std::find(reached_.begin(), reached_.end(), 0u);
    if (without != reached_.end())
        return refuse(!window_->unfit
                          ? std::move(window_->unfit)
                          : fail(error::window_unreachable,
                                 "rank {} cannot reach all parts of the window (its error says why): no rank has "
                                 "registered it",
                                 without - reached_.begin())
                                .about({.rank = int32_t(without - reached_.begin())}));
    if (!windows().switches(number_, parts_)) return finish(), Progress::done;
    stage_ = Stage::switching;
    switch_entries_.resize(parts_.size());
    return advance_switch();
}

// The window works in any case, so no outcome is a failure.
Progress WindowRegistration::advance_switch() {
    if (!windows().advance_switch(number_, switch_entries_)) return finish(), Progress::done;
    failure_ = tell(switch_entries_);
    return failure_ ? Progress::moved : Progress::failed;
}

// All ranks refuse the window, and the communicator lives on.
Progress WindowRegistration::refuse(Status why) {
    refused_ = std::move(why);
    windows().begin_to_close(number_, !communicator().calls().messages().idle());
    if (!placed_) return end();
    wait_for_device(Stage::unmapping);
    return Progress::moved;
}

Progress WindowRegistration::end() {
    stage_ = Stage::done;
    open_ = false;
    if (opens_) return failure_ = std::move(refused_), Progress::failed;
    finish();
    return Progress::done;
}

Status WindowRegistration::pause(bool may_sleep) {
    // Kernels have their own deadlines, and may be enqueued behind kernels of the user.
    if (stage_ == Stage::draining) return pause_for_device(0);
    const bool on_device = stage_ == Stage::reaching || stage_ == Stage::unmapping;
    return on_device ? pause_for_device(since_us_) : communicator().pause(may_sleep);
}

// While a stage waits for this or other devices. `since_us`: the begin of the wait; 0: no deadline.
Status WindowRegistration::pause_for_device(int64_t since_us) {
    WEFT_TRY(communicator().usable());
    if (windows().any() && windows().serve()) return ok();
    const int64_t timeout_ms = communicator().context().options.timeout_ms;
    if (since_us > 0 && timeout_ms > 0 && now_us() - since_us > timeout_ms * 1000)
        return communicator().die(
            fail(error::timeout_window,
                 "rank {} waited {:.1f} s for the memory of a window to be mapped or unmapped between its device and "
                 "{}; the deadline (WEFT_TIMEOUT_MS) is {} ms: check whether kernels wait for ranks that have not made "
                 "this call",
                 communicator().rank(), double(now_us() - since_us) / 1e6,
                 ranks_text(windows().missing_on_device(number_)), timeout_ms));
    usleep(50);
    return ok();
}

// The registration failed: the handle names no window, and the memory belongs to the user again.
void WindowRegistration::unmake() {
    uint64_t making = weftWindow::making;
    if (!opens_ || !window_->magic.compare_exchange_strong(making, weftWindow::unmade, std::memory_order_acq_rel))
        return;
    if (std::exchange(open_, false)) windows().give_up(number_);
}

// Also ends a registration that was not finished.
WindowRegistration::~WindowRegistration() {
    try {
        unmake();
    } catch (const std::exception&) {  // out of memory for a warning
    }
}

Status WindowRegistration::take_failure() {
    unmake();
    return std::move(failure_);
}

void WindowRegistration::finish() {
    if (opens_) {
        open_ = false;
        window_->number = number_;
        window_->on_device = on_device_;
        if (on_device_)
            windows().complete_on_device(number_);
        else
            windows().complete(number_, parts_);
        window_->magic.store(weftWindow::living, std::memory_order_release);
    } else {
        window_->magic.store(weftWindow::destroyed, std::memory_order_release);
    }
}

}  // namespace weft::internal
