// driver_tasks.hpp: a thread of the process for calls of the driver that may wait for the device: mapping, unmapping and
// freeing. Kernels on the device may wait for a rank, so a rank's own thread does not make these calls. The thread lives
// as long as it has tasks.
#pragma once
#include <functional>

namespace weft::internal::cuda {

// Runs the task after earlier ones. False: there is no thread, and the next task starts it. Thread-safe.
bool post_driver_task(std::function<void()> task);

}  // namespace weft::internal::cuda
