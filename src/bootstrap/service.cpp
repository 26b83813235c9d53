#include "src/bootstrap/service.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cassert>
#include <cerrno>
#include <condition_variable>

#include "src/base/clock.hpp"
#include "src/base/per_process.hpp"

namespace weft {

Result<std::shared_ptr<Service>> Service::of_process() {
    struct Current {
        std::mutex mutex;
        std::weak_ptr<Service> service;
    };
    static PerProcess<Current> processes;
    Current& current = processes.get();
    std::lock_guard lock(current.mutex);
    auto service = current.service.lock();
    if (service) return service;
    Fd epoll(epoll_create1(EPOLL_CLOEXEC)), bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!epoll || !bell)
        return fail(weftSystemError, "the service thread has no descriptors: {}; raise the limit (ulimit -n)",
                    errno_text(errno));
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = bell.number();
    if (epoll_ctl(epoll.number(), EPOLL_CTL_ADD, bell.number(), &event) != 0)
        return fail(weftSystemError, "the service thread cannot wait: epoll_ctl: {}", errno_text(errno));
    try {
        service = std::make_shared<Service>(std::move(epoll), std::move(bell));
    } catch (const std::system_error& error) {
        return fail(weftSystemError, "the service thread could not be started: {}", error.what());
    }
    current.service = service;
    return service;
}

Service::Service(Fd epoll, Fd bell) : epoll_(std::move(epoll)), bell_(std::move(bell)), process_(process_token()) {
    // Signals are for the program's own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        thread_ = new std::thread([this] { loop(); });
    } catch (...) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_setname_np(thread_->native_handle(), "weft-service");
}

Service::~Service() {
    if (process_ != process_token()) return;                  // a child after fork: there is no thread here
    assert(thread_->get_id() != std::this_thread::get_id());  // its owners let go of it elsewhere
    post([this] { ending_ = true; });
    thread_->join();
    delete thread_;
}

void Service::post(Task task) {
    {
        std::lock_guard lock(mutex_);
        tasks_.push_back(std::move(task));
    }
    const uint64_t once = 1;
    (void)!write(bell_.number(), &once, sizeof once);
}

void Service::run(const Task& task) {
    if (process_ != process_token()) return;
    if (thread_->get_id() == std::this_thread::get_id()) return task();
    std::mutex mutex;
    std::condition_variable done;
    bool ran = false;
    post([&] {
        task();
        std::lock_guard lock(mutex);
        ran = true;
        done.notify_one();
    });
    std::unique_lock lock(mutex);
    done.wait(lock, [&] { return ran; });
}

Status Service::watch(int fd, uint32_t events, std::function<void(uint32_t)> callback) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    const int change = callbacks_.count(fd) ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (epoll_ctl(epoll_.number(), change, fd, &event) != 0)
        return fail(weftSystemError, "the service thread cannot wait for another descriptor: {}", errno_text(errno));
    callbacks_[fd] = std::make_shared<std::function<void(uint32_t)>>(std::move(callback));
    return ok();
}

void Service::forget(int fd) {
    if (callbacks_.erase(fd) > 0) epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, fd, nullptr);
}

uint64_t Service::after(int64_t us, Task task) {
    const uint64_t number = next_timer_++;
    const int64_t when = now_us() + us;
    timers_.emplace(std::pair(when, number), std::move(task));
    due_.emplace(number, when);
    return number;
}

void Service::cancel(uint64_t timer) {
    const auto place = due_.find(timer);
    if (place == due_.end()) return;
    timers_.erase({place->second, timer});
    due_.erase(place);
}

// Microseconds until the next one, -1 if there is none.
int64_t Service::run_timers() {
    while (!timers_.empty()) {
        const auto first = timers_.begin();
        const int64_t left = first->first.first - now_us();
        if (left > 0) return left;
        const Task task = std::move(first->second);
        due_.erase(first->first.second);
        timers_.erase(first);
        task();
    }
    return -1;
}

void Service::loop() {
    constexpr int at_once = 64;
    epoll_event events[at_once];
    while (!ending_) {
        const int64_t left = run_timers();
        const int timeout = left < 0 ? -1 : int(std::min<int64_t>((left + 999) / 1000, 60'000));
        const int count = epoll_wait(epoll_.number(), events, at_once, timeout);
        for (int i = 0; i < count; ++i) {
            const int fd = events[i].data.fd;
            if (fd == bell_.number()) {
                uint64_t rung;
                (void)!read(fd, &rung, sizeof rung);
                {
                    std::lock_guard lock(mutex_);
                    running_.swap(tasks_);
                }
                for (Task& task : running_) task();
                running_.clear();
            } else if (const auto found = callbacks_.find(fd); found != callbacks_.end()) {
                const auto callback = found->second;  // it may forget itself
                (*callback)(events[i].events);
            }
        }
    }
}

}  // namespace weft
