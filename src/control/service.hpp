// service.hpp: the process's one service thread, for what must be answered while no rank is inside Weft: connections
// that come in, heartbeats, news between hosts. It sleeps in epoll. There is none on one host: it is started by the
// first who needs it and ends with the last; a child after fork makes its own. Everything but watch(), forget(),
// after(), cancel() and on_failure(), which are for the thread itself (inside a task or a callback), is thread-safe.
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
    // On the thread itself too, by a task that gives up its last owner: the thread ends after the task then.
    ~Service();

    using Task = std::function<void()>;
    // Runs on the thread, soon.
    void post(Task task);
    // Runs on the thread and returns when it has, or throws what it threw; at once if the caller is the thread.
    void run(const Task& task);

    // Calls back with the events seen, as epoll has them; again for other events of the same descriptor.
    Status watch(int fd, uint32_t events, std::function<void(uint32_t)> callback);
    void forget(int fd);
    // Calls once after that time. The number is for cancel().
    uint64_t after(int64_t us, Task task);
    void cancel(uint64_t timer);
    // An exception that leaves a task or callback, as when memory runs out, leaves what that worked on half done: all
    // who have something here are told, and must give it up. `owner` names the handler; an empty one takes it away.
    void on_failure(const void* owner, std::function<void(const char* what)> handler);

    struct Loop;
    Service(std::shared_ptr<Loop> loop, OwnedThread thread);

  private:
    std::shared_ptr<Loop> loop_;  // the thread's too
    OwnedThread thread_;
};

}  // namespace weft::internal
