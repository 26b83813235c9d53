// progress.hpp: when a message last moved, for waits that fail without progress.
#pragma once
#include <atomic>
#include <chrono>

namespace weft_torch {

// Thread-safe.
class Progress {
  public:
    using Time = std::chrono::steady_clock::time_point;

    Time latest() const { return flowing_ > 0 ? std::chrono::steady_clock::now() : latest_.load(); }
    void note() { latest_ = std::chrono::steady_clock::now(); }

    // Progress lasts for its scope. A call of Weft runs there, which fails by itself without progress.
    class Flow {
      public:
        explicit Flow(Progress& progress) : progress_(progress) { ++progress_.flowing_; }
        ~Flow() {
            progress_.note();  // before latest() reads it
            --progress_.flowing_;
        }
        Flow(const Flow&) = delete;

      private:
        Progress& progress_;
    };

  private:
    std::atomic<Time> latest_{Time()};
    std::atomic<int> flowing_{0};
};

}  // namespace weft_torch
