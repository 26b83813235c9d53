#include "job_queue.hpp"

#include "failure.hpp"

namespace weft_torch {

void JobQueue::add(HostWorkPtr work, Job job) {
    std::lock_guard lock(mutex_);
    if (ending_) std::rethrow_exception(ended_failure());
    jobs_.emplace_back(std::move(work), std::move(job));
    wake();
}

HostWorkPtr JobQueue::step(std::unique_lock<std::mutex>& lock) {
    auto [work, job] = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    try {
        const at::ThreadLocalStateGuard state(work->state());
        job();
    } catch (...) {
        work->fail(std::current_exception());
    }
    job = nullptr;  // releases its tensors before the work is done
    lock.lock();
    return std::move(work);
}

std::vector<HostWorkPtr> JobQueue::take_waiting() {
    std::vector<HostWorkPtr> waiting;
    for (auto& [work, job] : jobs_) waiting.push_back(std::move(work));
    jobs_.clear();
    return waiting;
}

}  // namespace weft_torch
