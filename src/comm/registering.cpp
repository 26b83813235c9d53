#include "src/comm/registering.hpp"

#include <algorithm>

#include "src/base/clock.hpp"

namespace weft {

std::shared_ptr<Registering> Registering::open(weftComm* comm, weftWindow* window) {
    return std::make_shared<Registering>(comm, window, true);
}

std::shared_ptr<Registering> Registering::close(weftComm* comm, weftWindow* window) {
    return std::make_shared<Registering>(comm, window, false);
}

Status Registering::begin() { return opens_ ? begin_opening() : begin_closing(); }

// From here on others may come to our part: they know of it only when we tell.
Status Registering::begin_opening() {
    Status begun = [&]() -> Status {
        WEFT_TRY(communicator().usable());
        number_ = communicator().next_window();
        auto part = communicator().open_window(number_, *window_, unfit_);
        if (!part) return part.take_status();
        communicator().count_window();
        parts_.resize(size_t(communicator().ranks()));
        reached_.resize(parts_.size());
        parts_[size_t(communicator().rank())] = *part;
        return tell();
    }();
    if (!begun) window_->magic.store(weftWindow::unmade, std::memory_order_release);
    return begun;
}

// Who tells that it is done has had the answers to all that it asked for, and its kernels have ended.
Status Registering::begin_closing() {
    WEFT_TRY(check_living(*window_));
    number_ = window_->number;
    on_device_ = window_->on_device;
    if (Status usable = communicator().usable(); !usable) {
        if (!communicator().dead()) return usable;
        communicator().await_untouched();
        communicator().begin_to_close_window(number_);
        stage_ = Stage::done;
        finish();
        return ok();
    }
    parts_.resize(size_t(communicator().ranks()));
    reached_.resize(parts_.size());
    if (on_device_) return wait_for_device(Stage::draining), ok();
    stage_ = Stage::flushing;
    return communicator().begin_flush();
}

template <class Word>
Status Registering::tell(std::vector<Word>& all) {
    static_assert(sizeof(Word) % sizeof(uint64_t) == 0);
    return communicator().begin_telling(opens_ ? Operation::op_of_window : Operation::op_of_windows_end, all.data(),
                                        sizeof(Word));
}

Status Registering::tell() {
    stage_ = Stage::telling;
    return tell(parts_);
}

void Registering::wait_for_device(Stage stage) {
    stage_ = stage;
    since_us_ = now_us();
}

Progress Registering::advance() {
    switch (stage_) {
        case Stage::done: return Progress::done;
        case Stage::draining:
        case Stage::reaching:
        case Stage::unmapping: return advance_on_device();
        default: return advance_telling();
    }
}

Progress Registering::advance_telling() {
    const Progress progress = communicator().advance();
    if (progress == Progress::failed) failure_ = communicator().take_failure();
    if (progress != Progress::done) return progress;
    (void)communicator().end();
    if (stage_ == Stage::telling) return have_told();
    if (stage_ == Stage::agreeing) return agree();
    if (stage_ == Stage::parting) return end();
    failure_ = tell();
    return failure_ ? Progress::moved : Progress::failed;
}

Progress Registering::have_told() {
    if (!opens_) {
        communicator().begin_to_close_window(number_);
        if (!on_device_) return end();
        wait_for_device(Stage::unmapping);
        return Progress::moved;
    }
    if (Status unlike = check_parts(); !unlike) return refuse(std::move(unlike));
    for (const WindowPart& part : parts_) on_device_ |= part.memory == WindowPart::device;
    if (on_device_) return wait_for_device(Stage::reaching), Progress::moved;
    finish();
    return Progress::done;
}

// All ranks come to one end, for all see the same parts; whose memory it is says why.
Status Registering::check_parts() {
    const WindowPart *host = nullptr, *device = nullptr;
    for (const WindowPart& part : parts_) {
        const auto rank = &part - parts_.data();
        if (part.memory == WindowPart::unfit)
            return !unfit_
                       ? std::move(unfit_)
                       : fail(weftInvalidArgument,
                              "what rank {} registers cannot be in a window, as it was told: nothing was registered",
                              rank);
        if (part.memory == WindowPart::host && !host) host = &part;
        if (part.memory == WindowPart::device && !device) device = &part;
    }
    if (!host || !device) return ok();
    return fail(weftInvalidArgument,
                "rank {} registers host memory, rank {} device memory: a window is of one kind on all ranks that lend "
                "any",
                host - parts_.data(), device - parts_.data());
}

Progress Registering::advance_on_device() {
    if (stage_ == Stage::draining) {
        if (!communicator().device_idle()) return Progress::blocked;
        failure_ = tell();
        return failure_ ? Progress::moved : Progress::failed;
    }
    if (stage_ == Stage::unmapping) {
        if (!communicator().window_closed(number_)) return Progress::blocked;
        stage_ = Stage::parting;
        failure_ = tell(reached_);
        return failure_ ? Progress::moved : Progress::failed;
    }
    auto all = communicator().reach_window(number_, parts_);
    if (all && !*all) return Progress::blocked;
    if (!all) unfit_ = all.take_status();
    reached_[size_t(communicator().rank())] = unfit_ ? 1 : 0;
    stage_ = Stage::agreeing;
    failure_ = tell(reached_);
    return failure_ ? Progress::moved : Progress::failed;
}

Progress Registering::agree() {
    const auto without = std::find(reached_.begin(), reached_.end(), 0u);
    if (without != reached_.end())
        return refuse(!unfit_ ? std::move(unfit_)
                              : fail(weftInvalidUsage,
                                     "rank {} cannot reach all parts of the window, as it was told: nothing was "
                                     "registered",
                                     without - reached_.begin()));
    finish();
    return Progress::done;
}

// On all ranks, which go on.
Progress Registering::refuse(Status why) {
    unfit_ = std::move(why);
    communicator().begin_to_close_window(number_);
    wait_for_device(Stage::unmapping);
    return Progress::moved;
}

Progress Registering::end() {
    stage_ = Stage::done;
    if (opens_) return failure_ = std::move(unfit_), Progress::failed;
    finish();
    return Progress::done;
}

Status Registering::pause(bool may_sleep) {
    const bool on_device = stage_ == Stage::draining || stage_ == Stage::reaching || stage_ == Stage::unmapping;
    return on_device ? communicator().pause_for_device(since_us_) : communicator().pause(may_sleep);
}

Registering::~Registering() {
    uint64_t making = weftWindow::making;
    if (opens_) window_->magic.compare_exchange_strong(making, weftWindow::unmade, std::memory_order_acq_rel);
}

Status Registering::take_failure() {
    if (opens_) window_->magic.store(weftWindow::unmade, std::memory_order_release);
    return std::move(failure_);
}

void Registering::finish() {
    if (opens_) {
        window_->number = number_;
        window_->on_device = on_device_;
        if (on_device_)
            communicator().complete_device_window(number_);
        else
            communicator().complete_window(number_, parts_);
        window_->magic.store(weftWindow::living, std::memory_order_release);
    } else {
        window_->magic.store(weftWindow::destroyed, std::memory_order_release);
    }
}

}  // namespace weft
