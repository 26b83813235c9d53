#include "src/streams/turns.hpp"

#include "src/base/cancellation.hpp"

namespace weft::internal {

void Turns::wait_until_idle() {
    const CancelHeld held;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return idle() || (closed_ && !active_); });
}

void Turns::close() {
    std::unique_lock lock(mutex_);
    closed_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !active_; });
}

void Turns::end(uint64_t number) {
    ended_[size_t(number - next_)] = true;
    for (; !ended_.empty() && ended_.front(); ++next_) ended_.pop_front();
    open_.fetch_sub(1, std::memory_order_release);
    changed_.notify_all();
}

Turn::Turn(Turns& turns) : turns_(&turns) {
    std::lock_guard lock(turns.mutex_);
    turns.ended_.push_back(false);
    number_ = turns.taken_++;
    turns.open_.fetch_add(1, std::memory_order_relaxed);
}

void Turn::await() {
    std::unique_lock lock(turns_->mutex_);
    turns_->changed_.wait(lock, [&] { return turns_->closed_ || turns_->next_ == number_; });
}

bool Turn::begin() {
    std::lock_guard lock(turns_->mutex_);
    if (turns_->closed_) return false;  // another turn may still be active
    active_ = turns_->active_ = true;
    turns_->driver_ = std::this_thread::get_id();
    return true;
}

Turn::~Turn() {
    std::lock_guard lock(turns_->mutex_);
    if (active_) turns_->active_ = false, turns_->driver_ = {};
    turns_->end(number_);
}

}  // namespace weft::internal
