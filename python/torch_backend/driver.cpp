#include "driver.hpp"

#include <pthread.h>

#include <algorithm>
#include <system_error>
#include <unordered_map>

#include "failure.hpp"

namespace weft_torch {

// A caller usually waits at once, and then carries its operation out. A thread that woke before would take the processor
// from another rank.
static constexpr std::chrono::microseconds grace{50};

// The operations of each driver whose callbacks this thread runs. A callback must not wait for itself.
static thread_local std::unordered_map<const Driver*, int> completing_here;

int Driver::own_completions() const {
    const auto found = completing_here.find(this);
    return found == completing_here.end() ? 0 : found->second;
}

Driver::~Driver() {
    // A child of fork() has no threads to join.
    if (origin_.is_forked())
        for (std::thread& thread : threads_) thread.detach();
}

void Driver::wake() {
    if (active_) return;  // the end of the step wakes a thread
    if (sleeping_ > 0) {
        alarm_.ring_after(grace);
        return;
    }
    try {
        threads_.emplace_back([self = shared_from_this()] {
            pthread_setname_np(pthread_self(), "weft-torch");
            self->serve();
        });
    } catch (const std::system_error& error) {
        TORCH_WARN_ONCE("weft: no thread can be started (", error.what(),
                        "); asynchronous operations go on only while a thread waits for one. Allow this process more "
                        "threads (ulimit -u, or the pids limit of its container)");
        return;
    }
    ++sleeping_;
    alarm_.ring_after(grace);
}

// One step, and the callbacks of the operation that it ended. Others may advance while the callbacks run.
void Driver::advance(std::unique_lock<std::mutex>& lock) {
    active_ = true;
    HostWorkPtr ended = step(lock);
    active_ = false;
    progress_.note();
    if (has_work() && !ending_) wake();
    if (ended) {
        ++completing_;
        lock.unlock();
        ++completing_here[this];
        ended->complete();
        ended.reset();
        if (--completing_here[this] == 0) completing_here.erase(this);
        lock.lock();
        --completing_;
    }
    changed_.notify_all();
}

void Driver::serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
        lock.unlock();
        alarm_.sleep();
        lock.lock();
        --sleeping_;
        while (!ending_ && !active_ && has_work()) advance(lock);
        if (ending_) {
            alarm_.ring_after({});  // for the next thread
            return;
        }
        ++sleeping_;
    }
}

bool Driver::wait_for(const HostWork& work, std::optional<Time> until, std::optional<std::chrono::milliseconds> limit) {
    if (origin_.is_forked())
        throw_usage("wait: this process is a child of fork(), and the operation is its parent's [usage.forked]");
    const Time begun = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    // Progress of the driver moves it.
    const auto deadline = [&] { return until ? *until : std::max(begun, progress_.latest()) + *limit; };
    while (!work.is_done()) {
        if (!until && !active_ && has_work() && !ending_) {
            advance(lock);
        } else if (until || limit) {
            if (changed_.wait_until(lock, deadline()) == std::cv_status::timeout &&
                deadline() <= std::chrono::steady_clock::now())
                return work.is_done();
        } else {
            changed_.wait(lock);
        }
    }
    return true;
}

bool Driver::run_alone(const std::function<void()>& call) {
    std::unique_lock lock(mutex_);
    if (active_ || ending_ || has_work()) return false;
    active_ = true;
    lock.unlock();
    const auto leave = [&] {
        lock.lock();
        active_ = false;
        if (has_work() && !ending_) wake();
        changed_.notify_all();
    };
    try {
        call();
    } catch (...) {
        leave();
        throw;
    }
    leave();
    return true;
}

void Driver::drain() {
    std::unique_lock lock(mutex_);
    while (is_busy()) {
        if (!active_ && has_work() && !ending_)
            advance(lock);
        else  // another driver may take a receive from this one without a word
            changed_.wait_for(lock, std::chrono::milliseconds(20));
    }
}

bool Driver::is_idle() {
    std::lock_guard lock(mutex_);
    return !active_ && !has_work();
}

bool Driver::become_idle(Time until) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, until, [&] { return !active_ && !has_work(); });
}

void Driver::end() {
    if (origin_.is_forked()) return;
    std::vector<HostWorkPtr> dropped;
    std::vector<std::thread> ending;
    {
        std::unique_lock lock(mutex_);
        ending_ = true;
        dropped = take_waiting();
        ending.swap(threads_);
        alarm_.ring_after({});
    }
    for (const HostWorkPtr& work : dropped) work->fail(ended_failure());
    for (const HostWorkPtr& work : dropped) work->complete();
    {
        std::lock_guard lock(mutex_);
        changed_.notify_all();
    }
    for (std::thread& thread : ending) {
        // A callback may end its own process group.
        if (thread.get_id() == std::this_thread::get_id())
            thread.detach();
        else
            thread.join();
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !active_; });
}

}  // namespace weft_torch
