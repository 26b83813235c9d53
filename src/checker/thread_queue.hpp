// thread_queue.hpp: the threads (blocks of ranks) of a proof that may be able to run.
#pragma once
#include <cstddef>
#include <vector>

namespace weft::internal {

class ThreadQueue {
  public:
    explicit ThreadQueue(size_t threads) : queued_(threads), ended_(threads) {}
    // -1 and ended threads are ignored.
    void add(int thread) {
        if (thread < 0 || queued_[size_t(thread)] || ended_[size_t(thread)]) return;
        queued_[size_t(thread)] = true;
        queue_.push_back(thread);
    }
    // The last one that was added; -1: none.
    int take() {
        if (queue_.empty()) return -1;
        const int thread = queue_.back();
        queue_.pop_back();
        queued_[size_t(thread)] = false;
        return thread;
    }
    void set_ended(int thread, bool ended) { ended_[size_t(thread)] = ended; }
    bool ended(int thread) const { return ended_[size_t(thread)]; }

  private:
    std::vector<int> queue_;
    std::vector<bool> queued_, ended_;
};

}  // namespace weft::internal
