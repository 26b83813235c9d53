// failure_watch.hpp: a thread that finds failures of communicators while this rank makes no call. The abort hooks run on all
// ranks by it: the dump of a late rank, too, says which calls it made last.
#pragma once
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "process.hpp"

namespace weft_torch {

// Of the process. Thread-safe.
class FailureWatch {
  public:
    // `look` returns false when nothing is left to look at: the thread ends then.
    explicit FailureWatch(std::function<bool()> look) : look_(std::move(look)) {}
    // Starts the thread unless it runs. A child of fork() has a thread of its own.
    void start();
    void stop();

  private:
    struct State {
        std::mutex mutex;
        std::condition_variable changed;
        std::thread thread;
        bool running = false, ending = false;
        const Origin origin;
    };
    void serve(State& state);

    const std::function<bool()> look_;
    std::mutex mutex_;  // of the pointer
    std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace weft_torch
