// launch_order.hpp: the order of a rank's launches. All of them run in the order of its calls, on any streams, because
// they use the same flags. Thread-bound to the rank unless stated otherwise.
#pragma once
#include <atomic>
#include <memory>

#include "src/drivers/cuda/event.hpp"
#include "src/drivers/cuda/stream.hpp"
#include "src/gpu/domain/domain_ranks.hpp"
#include "src/gpu/domain/kernel_set.hpp"
#include "src/gpu/domain/pinned_pages.hpp"

namespace weft::internal::cuda {

class LaunchOrder {
  public:
    // `ranks` and `kernels` must outlive this object.
    LaunchOrder(const DomainRanks& ranks, const KernelSet& kernels) : ranks_(ranks), kernels_(kernels) {}
    // Called once, while the domain is made. `last_launches`: of the ranks of this process.
    Status begin(std::shared_ptr<SharedAbortFlag> last_launches);
    // Destroys the events; their context must be current.
    void end();

    // Fails if another rank of this process launches the same operation on the same stream: both would wait for each
    // other. The thread's own stream (CU_STREAM_PER_THREAD) cannot be identified, so it is not checked.
    Status claim(CUstream stream, const StreamFacts& facts);
    // Called before and after each launch. `stream` may be CU_STREAM_PER_THREAD, another stream in each thread.
    Status order(CUstream stream, const StreamFacts& facts);
    Status note(CUstream stream, const StreamFacts& facts);
    // Whether a directly launched kernel is still running. Thread-safe.
    bool working() const;
    // Whether launches were captured: their graphs may be replayed at any time. Thread-safe.
    bool captured() const { return captured_.load(std::memory_order_relaxed); }
    // Returns when the directly launched kernels have ended, or two seconds after an abort.
    void finish() const;

  private:
    const DomainRanks& ranks_;
    const KernelSet& kernels_;
    std::shared_ptr<SharedAbortFlag> last_launches_;
    Event done_;           // after the newest direct launch
    Event captured_done_;  // after the newest launch of the capture `capture_`
    uint64_t last_ = 0;    // the id of the stream of the newest direct launch
    uint64_t last_captured_ = 0;
    bool launched_ = false;
    uint64_t claims_ = 0;
    uint64_t capture_ = 0;
    std::atomic<bool> captured_{false};
};

}  // namespace weft::internal::cuda
