#include "failure_watch.hpp"

#include <pthread.h>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include <chrono>

namespace weft_torch {

// As often as torch's own watch of NCCL looks.
static constexpr std::chrono::seconds period(1);

void FailureWatch::serve(State& state) {
    std::unique_lock lock(state.mutex);
    while (!state.changed.wait_for(lock, period, [&] { return state.ending; })) {
        lock.unlock();
        const bool more = look_();
        lock.lock();
        if (!more) break;
    }
    state.running = false;
}

void FailureWatch::start() {
    std::lock_guard pointer(mutex_);
    // The parent's state is leaked: its thread does not exist here.
    if (state_->origin.is_forked()) {
        new std::shared_ptr<State>(std::move(state_));
        state_ = std::make_shared<State>();
    }
    State& state = *state_;
    std::lock_guard lock(state.mutex);
    if (state.running || state.ending) return;
    if (state.thread.joinable()) state.thread.join();
    state.running = true;
    state.thread = std::thread([this, owned = state_] {
        pthread_setname_np(pthread_self(), "weft-watch");
        serve(*owned);
    });
}

void FailureWatch::stop() {
    std::lock_guard pointer(mutex_);
    if (state_->origin.is_forked()) return;
    {
        std::lock_guard lock(state_->mutex);
        state_->ending = true;
        state_->changed.notify_all();
    }
    if (state_->thread.joinable()) state_->thread.join();
}

}  // namespace weft_torch
