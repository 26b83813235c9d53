// job_queue.hpp: a driver whose operations are functions, executed in the order in which they were added.
#pragma once
#include <deque>
#include <functional>
#include <utility>

#include "driver.hpp"

namespace weft_torch {

// Thread-safe.
class JobQueue final : public Driver {
  public:
    using Job = std::function<void()>;
    // A job that throws fails its work.
    void add(HostWorkPtr work, Job job);

  protected:
    bool has_work() const override { return !jobs_.empty(); }
    HostWorkPtr step(std::unique_lock<std::mutex>& lock) override;
    std::vector<HostWorkPtr> take_waiting() override;

  private:
    std::deque<std::pair<HostWorkPtr, Job>> jobs_;
};

}  // namespace weft_torch
