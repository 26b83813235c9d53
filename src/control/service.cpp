#include "src/control/service.hpp"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <vector>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/base/per_process.hpp"

namespace weft::internal {

// The state of the thread. It outlives the Service if a task of the thread destroyed the Service.
struct Service::Loop {
    Fd epoll, bell;
    // Only for the thread.
    std::map<int, std::shared_ptr<std::function<void(uint32_t)>>> callbacks;
    std::map<std::pair<int64_t, uint64_t>, Task> timers;  // by when, then by number
    std::map<uint64_t, int64_t> due;                      // by a timer's number
    uint64_t next_timer = 1;
    std::map<const void*, FailureHandler> failure_handlers;
    std::vector<Task> running;  // not on the stack, where a leak checker in a forked child would not find them
    // Shared.
    std::atomic<bool> ending{false};
    std::mutex mutex;
    std::vector<Task> tasks;

    void run();
    template <class Body>
    void guard(Body&& body);
    void fail(ErrorId error, const char* what);
    int64_t run_timers();
    void run_tasks();
};

Result<std::shared_ptr<Service>> Service::of_process() {
    return shared_by_process<Service>([]() -> Result<std::shared_ptr<Service>> {
        auto loop = std::make_shared<Loop>();
        loop->epoll = Fd::epoll();
        loop->bell = Fd::event();
        if (!loop->epoll || !loop->bell)
            return weft::internal::fail(error::system_descriptors, "the service thread has no descriptors: {}",
                                        no_descriptor_text(errno));
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.fd = loop->bell.number();
        if (epoll_ctl(loop->epoll.number(), EPOLL_CTL_ADD, loop->bell.number(), &event) != 0)
            return weft::internal::fail(error::system_call, "the service thread cannot wait: epoll_ctl: {}",
                                        errno_text(errno));
        auto thread = OwnedThread::start("weft-service", [loop] { loop->run(); });
        if (!thread) return thread.take_status();
        return std::make_shared<Service>(std::move(loop), std::move(*thread));
    });
}

Service::Service(std::shared_ptr<Loop> loop, OwnedThread thread) : loop_(std::move(loop)), thread_(std::move(thread)) {}

Service::~Service() {
    if (!thread_.runs_here()) return;
    loop_->ending.store(true, std::memory_order_release);
    if (!thread_.is_current()) post([] {});  // wakes it
    thread_.end();
}

void Service::post(Task task) {
    {
        std::lock_guard lock(loop_->mutex);
        loop_->tasks.push_back(std::move(task));
    }
    ring_event(loop_->bell);
}

void Service::run(const Task& task) {
    if (!thread_.runs_here()) return;
    if (thread_.is_current()) return task();
    struct {
        std::mutex mutex;
        std::condition_variable done;
        bool ran = false;
        std::exception_ptr thrown;
    } call;
    post([&call, &task] {
        std::exception_ptr thrown;
        try {
            task();
        } catch (...) {
            thrown = std::current_exception();
        }
        std::lock_guard lock(call.mutex);
        call.thrown = std::move(thrown);
        call.ran = true;
        call.done.notify_one();
    });
    std::unique_lock lock(call.mutex);
    call.done.wait(lock, [&] { return call.ran; });
    if (call.thrown) std::rethrow_exception(call.thrown);
}

Status Service::watch(int fd, uint32_t events, std::function<void(uint32_t)> callback) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    const int change = loop_->callbacks.count(fd) ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (epoll_ctl(loop_->epoll.number(), change, fd, &event) != 0)
        return fail(error::system_call, "the service thread cannot wait for another descriptor: {}", errno_text(errno));
    loop_->callbacks[fd] = std::make_shared<std::function<void(uint32_t)>>(std::move(callback));
    return ok();
}

void Service::forget(int fd) {
    if (loop_->callbacks.erase(fd) > 0) epoll_ctl(loop_->epoll.number(), EPOLL_CTL_DEL, fd, nullptr);
}

uint64_t Service::after(int64_t us, Task task) {
    const uint64_t number = loop_->next_timer++;
    const int64_t when = now_us() + us;
    loop_->timers.emplace(std::pair(when, number), std::move(task));
    loop_->due.emplace(number, when);
    return number;
}

void Service::cancel(uint64_t timer) {
    const auto place = loop_->due.find(timer);
    if (place == loop_->due.end()) return;
    loop_->timers.erase({place->second, timer});
    loop_->due.erase(place);
}

void Service::on_failure(const void* owner, FailureHandler handler) {
    if (handler)
        loop_->failure_handlers[owner] = std::move(handler);
    else
        loop_->failure_handlers.erase(owner);
}

template <class Body>
void Service::Loop::guard(Body&& body) {
    try {
        body();
    } catch (const std::bad_alloc&) {
        fail(error::memory_exhausted, "out of memory");
    } catch (const std::exception& exception) {
        fail(error::internal_exception, exception.what());
    } catch (...) {
        fail(error::internal_exception, "an unknown exception");
    }
}

void Service::Loop::fail(ErrorId error, const char* what) {
    for (const auto& [owner, handler] : failure_handlers) {
        try {
            handler(error, what);
        } catch (...) {
            // The handler has recorded its error before it needs memory to report it.
        }
    }
}

// Microseconds until the next timer, -1 if there is none.
int64_t Service::Loop::run_timers() {
    while (!timers.empty() && !ending.load(std::memory_order_acquire)) {
        const auto first = timers.begin();
        const int64_t left = first->first.first - now_us();
        if (left > 0) return left;
        const Task task = std::move(first->second);
        due.erase(first->first.second);
        timers.erase(first);
        guard(task);
    }
    return -1;
}

void Service::Loop::run_tasks() {
    {
        std::lock_guard lock(mutex);
        running.swap(tasks);
    }
    for (const Task& task : running) guard(task);
    running.clear();
}

void Service::Loop::run() {
    constexpr int at_once = 64;
    // epoll does not report closed descriptors. Without them the thread still runs tasks and timers, so that all owners
    // can end.
    constexpr int64_t look_ms = 1000, lost_nap_ms = 10;
    bool lost = false;
    epoll_event events[at_once];
    while (!ending.load(std::memory_order_acquire)) {
        const int64_t left = run_timers();
        const int64_t most = lost ? lost_nap_ms : look_ms;
        const int timeout = int(left < 0 ? most : std::min((left + 999) / 1000, most));
        const auto lose = [&] {
            lost = true;
            fail(error::usage_closed_descriptor, lost_descriptor_text);
        };
        if (!lost && (!epoll.intact() || !bell.intact())) lose();
        if (lost) {
            if (!ending.load(std::memory_order_acquire)) usleep(useconds_t(timeout) * 1000);
            run_tasks();
            continue;
        }
        const int count =
            ending.load(std::memory_order_acquire) ? 0 : epoll_wait(epoll.number(), events, at_once, timeout);
        // intact() cannot see that the number now belongs to an event descriptor of the program.
        if (count < 0 && errno != EINTR) lose();
        for (int i = 0; i < count; ++i) {
            const int fd = events[i].data.fd;
            if (fd == bell.number()) {
                drain_event(bell);
                run_tasks();
            } else if (const auto found = callbacks.find(fd); found != callbacks.end()) {
                const auto callback = found->second;  // it may call forget() for itself
                guard([&] { (*callback)(events[i].events); });
            }
        }
    }
    run_tasks();
}

}  // namespace weft::internal
