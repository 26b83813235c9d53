#include "src/gpu/domain/driver_tasks.hpp"

#include <deque>
#include <exception>
#include <mutex>

#include "src/base/per_process.hpp"
#include "src/base/thread.hpp"

namespace weft::internal::cuda {

bool post_driver_task(std::function<void()> task) {
    struct Queue {
        std::mutex mutex;
        std::deque<std::function<void()>> tasks;
        bool running = false;
    };
    static PerProcess<Queue> of_process;
    Queue& queue = of_process.get();
    std::lock_guard lock(queue.mutex);
    queue.tasks.push_back(std::move(task));
    if (queue.running) return true;
    const Status started = run_detached("weft-mapper", [&queue] {
        std::unique_lock own(queue.mutex);
        while (!queue.tasks.empty()) {
            std::function<void()> next = std::move(queue.tasks.front());
            queue.tasks.pop_front();
            own.unlock();
            try {
                next();
            } catch (const std::exception&) {  // the task has no caller: what it left undone is retried or kept
            }
            next = nullptr;  // releases the task's objects without the lock
            own.lock();
        }
        queue.running = false;
    });
    return queue.running = bool(started);  // otherwise the next post() tries again
}

}  // namespace weft::internal::cuda
