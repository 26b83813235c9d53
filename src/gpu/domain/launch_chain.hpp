// launch_chain.hpp: one order for the launches of all communicators of a process on a device: each waits for the one
// before (WEFT_GPU_LAUNCH_ORDER). If all ranks call in the same order, no two kernels hold room that the other waits for.
#pragma once
#include <memory>
#include <mutex>

#include "src/base/per_process.hpp"
#include "src/drivers/cuda/event.hpp"

namespace weft::internal::cuda {

// Shared by the communicators. All members are guarded by `mutex`, which a launching thread holds (LaunchOrder).
struct LaunchChain {
    // An event, and the id of the stream that it is in; null: there is none.
    struct Link {
        std::shared_ptr<Event> done;
        uint64_t stream = 0;
    };
    std::mutex mutex;
    Link direct;           // after the newest direct launch
    Link captured;         // after the newest launch of the capture
    uint64_t capture = 0;  // its id

    static std::shared_ptr<LaunchChain> of_device(int device) {
        return *shared_by_process<LaunchChain>(
            device, []() -> Result<std::shared_ptr<LaunchChain>> { return std::make_shared<LaunchChain>(); });
    }
    // Forgets the events of a communicator that ends.
    void forget(const std::shared_ptr<Event>& one, const std::shared_ptr<Event>& other) {
        const std::lock_guard lock(mutex);
        for (Link* link : {&direct, &captured})
            if (link->done == one || link->done == other) *link = {};
    }
};

}  // namespace weft::internal::cuda
