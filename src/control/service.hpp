// service.hpp: the service thread of a process. It serves incoming connections, heartbeats and control frames while no
// rank is inside Weft, and sleeps in epoll. The first owner starts it, it ends with the last owner, and a child after
// fork makes its own. Jobs on one host have none. Thread-safe, except for watch(), forget(), after(), cancel() and
// on_failure(), which only the thread itself may call (inside a task or a callback).
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "src/base/fd.hpp"
#include "src/base/result.hpp"
#include "src/base/thread.hpp"

namespace weft::internal {

class Service {
  public:
    static Result<std::shared_ptr<Service>> of_process();
    // May run on the thread itself, in a task that releases the last owner: the thread then ends after the task.
    ~Service();

    using Task = std::function<void()>;
    // Runs the task on the thread, asynchronously.
    void post(Task task);
    // Runs the task on the thread and waits for it; rethrows its exception. Runs it at once on the thread itself.
    void run(const Task& task);

    // Calls back with epoll's events. A second call for the same descriptor changes the events.
    Status watch(int fd, uint32_t events, std::function<void(uint32_t)> callback);
    void forget(int fd);
    // Runs the task once after that time. Returns a number for cancel().
    uint64_t after(int64_t us, Task task);
    void cancel(uint64_t timer);
    // An exception of a task or callback (memory ran out) leaves its work half done. The thread then calls all handlers,
    // and every owner must give up its work. `owner` is the key of the handler; an empty handler removes it. `error`:
    // memory.exhausted, internal.exception, or usage.closed-descriptor.
    using FailureHandler = std::function<void(ErrorId error, const char* what)>;
    void on_failure(const void* owner, FailureHandler handler);

    struct Loop;
    Service(std::shared_ptr<Loop> loop, OwnedThread thread);

  private:
    std::shared_ptr<Loop> loop_;  // shared with the thread
    OwnedThread thread_;
};

}  // namespace weft::internal
