#include "src/control/leaving_controls.hpp"

#include <algorithm>
#include <chrono>

#include "src/base/per_process.hpp"

namespace weft::internal {

LeavingControls& LeavingControls::of_process() {
    static PerProcess<LeavingControls> processes;
    return processes.get();
}

void LeavingControls::add(std::shared_ptr<Control> control) {
    const std::lock_guard lock(mutex_);
    controls_.insert(std::move(control));
}

std::shared_ptr<Control> LeavingControls::remove(const Control* control) {
    std::shared_ptr<Control> removed;
    const std::lock_guard lock(mutex_);
    const auto place =
        std::find_if(controls_.begin(), controls_.end(), [&](const auto& one) { return one.get() == control; });
    if (place != controls_.end()) removed = std::move(controls_.extract(place).value());
    changed_.notify_all();
    return removed;
}

std::set<std::shared_ptr<Control>> LeavingControls::all() {
    const std::lock_guard lock(mutex_);
    return controls_;
}

void LeavingControls::wait(int64_t most_us) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::microseconds(most_us), [this] { return controls_.empty(); });
}

}  // namespace weft::internal
