// extension.hpp: time that the user adds to the timeouts of works until the first of them has ended.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>

namespace weft_torch {

// Of one backend. Thread-safe.
class Extension {
  public:
    void add(std::chrono::milliseconds time);
    // The time that a work that is made now gets beside its timeout.
    std::chrono::milliseconds active() const { return std::chrono::milliseconds(active_ms_.load()); }
    // A call that begins now keeps the result until it ends, which takes the added time back. Null: earlier calls do that.
    static std::shared_ptr<void> claim(const std::shared_ptr<Extension>& extension);

  private:
    std::mutex mutex_;  // of changes
    std::atomic<int64_t> active_ms_{0};
    int64_t claimed_ms_ = 0;
};

}  // namespace weft_torch
