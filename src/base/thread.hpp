// thread.hpp: the library's own threads. They block all signals, which belong to the program's threads.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "src/base/result.hpp"

namespace weft::internal {

// Runs `function` on a detached thread. Fails if none can be created. `name`: at most 15 characters. Thread-safe.
Status run_detached(const char* name, std::function<void()> function);

// The total time that the calling thread has been ready to run but waited for a processor; 0 if the kernel does not
// report it.
int64_t processor_wait_us();

// A thread that its owner ends. In a child after fork, where it does not run, there is nothing to end.
class OwnedThread {
  public:
    OwnedThread() = default;
    static Result<OwnedThread> start(const char* name, std::function<void()> function);

    // False in a child after fork.
    bool runs_here() const;
    bool is_current() const { return thread_ && thread_->get_id() == std::this_thread::get_id(); }
    // Waits for its end; if the thread itself calls this, it detaches. Only in the process where it runs.
    void end();

  private:
    // For a child, which can neither join nor detach a thread of another process.
    struct Leak {
        void operator()(std::thread*) const {}
    };
    uint64_t process_ = 0;
    std::unique_ptr<std::thread, Leak> thread_;
};

}  // namespace weft::internal
