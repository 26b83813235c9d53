// thread.hpp: threads of the library's own. They take no signals, which are for the program's own threads.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "src/base/result.hpp"

namespace weft::internal {

// Runs `function` on a thread that nobody joins. Fails if there can be none. `name`: at most 15 letters. Thread-safe.
Status run_detached(const char* name, std::function<void()> function);

// How long the calling thread has been ready to run and had to wait for a processor, in all; 0 where the kernel does not
// say.
int64_t processor_wait_us();

// A thread that whoever started it ends. In a child after fork, where it does not run, there is nothing to end.
class OwnedThread {
  public:
    OwnedThread() = default;
    static Result<OwnedThread> start(const char* name, std::function<void()> function);

    // False in a child after fork.
    bool runs_here() const;
    bool is_current() const { return thread_ && thread_->get_id() == std::this_thread::get_id(); }
    // Waits for its end, or, called by the thread itself, lets it end alone. Only where it runs.
    void end();

  private:
    // For a child, which can neither join nor detach what another process runs.
    struct Leak {
        void operator()(std::thread*) const {}
    };
    uint64_t process_ = 0;
    std::unique_ptr<std::thread, Leak> thread_;
};

}  // namespace weft::internal
