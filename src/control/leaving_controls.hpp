// leaving_controls.hpp: the controls whose ranks have left, and which other hosts still need.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>

namespace weft::internal {

class Control;

// Owns them. One for each process, so that a child after fork has none. Thread-safe.
class LeavingControls {
  public:
    static LeavingControls& of_process();
    void add(std::shared_ptr<Control> control);
    // The caller destroys it.
    std::shared_ptr<Control> remove(const Control* control);
    std::set<std::shared_ptr<Control>> all();
    // Returns when none is left, or after `most_us`.
    void wait(int64_t most_us);

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::set<std::shared_ptr<Control>> controls_;
};

}  // namespace weft::internal
