#include "src/train/launch_queue.hpp"

#include <algorithm>

namespace weft::internal::train {

Result<std::unique_ptr<LaunchQueue>> LaunchQueue::start() {
    std::unique_ptr<LaunchQueue> queue(new LaunchQueue);
    auto thread = OwnedThread::start("weft-train", [own = queue.get()] { own->work(); });
    if (!thread) return thread.take_status();
    queue->thread_ = std::move(*thread);
    queue->has_thread_ = true;
    return queue;
}

LaunchQueue::~LaunchQueue() {
    if (!thread_.runs_here()) return;
    {
        std::lock_guard lock(mutex_);
        ending_ = true;
    }
    added_.notify_one();
    thread_.end();
}

Status LaunchQueue::carry_out(const Launch& launch) {
    try {
        return launch();
    } catch (const std::exception& exception) {
        return {error::internal_exception, exception.what()};
    }
}

LaunchQueue::Ticket LaunchQueue::add(Launch launch) {
    const Ticket ticket = add_before_wait(std::move(launch));
    if (has_thread_) added_.notify_one();
    return ticket;
}

LaunchQueue::Ticket LaunchQueue::add_before_wait(Launch launch) {
    if (!has_thread_) {
        if (failure_) failure_ = carry_out(launch);
        return done_count_ = ++added_count_;
    }
    std::lock_guard lock(mutex_);
    launches_.push_back(std::move(launch));
    return ++added_count_;
}

Status LaunchQueue::wait() {
    std::unique_lock lock(mutex_);
    return wait_for(lock, added_count_);
}

Status LaunchQueue::wait(Ticket last) {
    std::unique_lock lock(mutex_);
    return wait_for(lock, last);
}

bool LaunchQueue::done(Ticket launch) {
    std::lock_guard lock(mutex_);
    return done_count_ >= launch;
}

Status LaunchQueue::wait_for(std::unique_lock<std::mutex>& lock, Ticket last) {
    while (done_count_ < last) {
        if (busy_) {
            least_awaited_ = std::min(least_awaited_, last);
            done_.wait(lock);
        } else {
            carry_out_next(lock);
            wake_waiters();
        }
    }
    if (!launches_.empty()) added_.notify_one();  // the thread has waited while this one was busy
    return failure_.copy();
}

Status LaunchQueue::failure() {
    std::lock_guard lock(mutex_);
    return failure_.copy();
}

void LaunchQueue::fail(const Status& why) {
    std::lock_guard lock(mutex_);
    if (failure_) failure_ = why.copy();
}

void LaunchQueue::carry_out_next(std::unique_lock<std::mutex>& lock) {
    const Launch launch = std::move(launches_.front());
    launches_.pop_front();
    if (failure_) {
        busy_ = true;
        lock.unlock();
        Status done = carry_out(launch);
        lock.lock();
        busy_ = false;
        failure_ = std::move(done);
    }
    ++done_count_;
}

void LaunchQueue::wake_waiters() {
    // A waiter that wakes between two launches would compete with this thread for the next one.
    if (done_count_ < least_awaited_) return;
    least_awaited_ = UINT64_MAX;
    done_.notify_all();
}

void LaunchQueue::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        added_.wait(lock, [&] { return ending_ || (!busy_ && !launches_.empty()); });
        if (ending_) return;
        carry_out_next(lock);
        wake_waiters();
    }
}

}  // namespace weft::internal::train
