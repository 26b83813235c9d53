// service.hpp: the process's one service thread, for what must be answered while no rank is inside Weft: connections
// that come in, heartbeats, news between hosts. It sleeps in epoll. There is none on one host: it is started by the
// first who needs it and ends with the last; a child after fork makes its own. Everything but watch(), forget(),
// after() and cancel(), which are for the thread itself (inside a task or a callback), is thread-safe.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "src/base/fd.hpp"
#include "src/base/result.hpp"

namespace weft {

class Service {
  public:
    static Result<std::shared_ptr<Service>> of_process();
    ~Service();

    using Task = std::function<void()>;
    // Runs on the thread, soon.
    void post(Task task);
    // Runs on the thread and returns when it has; at once if the caller is the thread.
    void run(const Task& task);

    // Calls back with the events seen, as epoll has them; again for other events of the same descriptor.
    Status watch(int fd, uint32_t events, std::function<void(uint32_t)> callback);
    void forget(int fd);
    // Calls once after that time. The number is for cancel().
    uint64_t after(int64_t us, Task task);
    void cancel(uint64_t timer);

    Service(Fd epoll, Fd bell);

  private:
    void loop();
    int64_t run_timers();

    Fd epoll_, bell_;
    uint64_t process_;
    bool ending_ = false;
    // Of the thread.
    std::map<int, std::shared_ptr<std::function<void(uint32_t)>>> callbacks_;
    std::map<std::pair<int64_t, uint64_t>, Task> timers_;  // by when, then by number
    std::map<uint64_t, int64_t> due_;                      // of a timer's number
    uint64_t next_timer_ = 1;
    std::vector<Task> running_;  // not on its stack, where a leak checker in a forked child would not see them
    // Shared.
    std::mutex mutex_;
    std::vector<Task> tasks_;
    std::thread* thread_;  // leaked in a child after fork, where it does not run
};

}  // namespace weft
