#include "src/comm/registering.hpp"

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
        auto part = communicator().open_window(number_, window_->address, window_->bytes);
        if (!part) return part.take_status();
        communicator().count_window();
        parts_.resize(size_t(communicator().ranks()));
        parts_[size_t(communicator().rank())] = *part;
        return tell();
    }();
    if (!begun) window_->magic.store(weftWindow::unmade, std::memory_order_release);
    return begun;
}

// Who tells that it is done has had the answers to all that it asked for.
Status Registering::begin_closing() {
    WEFT_TRY(check_living(*window_));
    number_ = window_->number;
    if (Status usable = communicator().usable(); !usable) {
        if (!communicator().dead()) return usable;
        communicator().await_untouched();
        stage_ = Stage::done;
        finish();
        return ok();
    }
    stage_ = Stage::flushing;
    parts_.resize(size_t(communicator().ranks()));
    return communicator().begin_flush();
}

Status Registering::tell() {
    stage_ = Stage::telling;
    static_assert(sizeof(WindowPart) % sizeof(uint64_t) == 0);
    return communicator().begin_telling(opens_ ? Operation::op_of_window : Operation::op_of_windows_end, parts_.data(),
                                        sizeof(WindowPart));
}

Progress Registering::advance() {
    if (stage_ == Stage::done) return Progress::done;
    const Progress progress = communicator().advance();
    if (progress == Progress::failed) failure_ = communicator().take_failure();
    if (progress != Progress::done) return progress;
    (void)communicator().end();
    if (stage_ == Stage::flushing) {
        failure_ = tell();
        return failure_ ? Progress::moved : Progress::failed;
    }
    finish();
    return Progress::done;
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
        communicator().complete_window(number_, parts_);
        window_->number = number_;
        window_->magic.store(weftWindow::living, std::memory_order_release);
    } else {
        window_->magic.store(weftWindow::destroyed, std::memory_order_release);
        communicator().close_window(number_);
    }
}

}  // namespace weft
