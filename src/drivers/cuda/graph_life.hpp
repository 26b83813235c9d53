// graph_life.hpp: tells when a graph of a capture, and all that was made of it, are gone.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

#include "src/drivers/cuda/driver.hpp"

namespace weft::internal::cuda {

// Of one graph. The driver ends it, in any thread.
class GraphLife {
  public:
    bool ended() const { return ended_.load(std::memory_order_acquire); }  // pairs with GraphLives::watch()

  private:
    friend class GraphLives;
    std::shared_ptr<std::atomic<uint64_t>> ended_graphs_;
    std::atomic<bool> ended_{false};
};

// Thread-bound. The graphs may outlive it.
class GraphLives {
  public:
    // Null: the driver does not tell when this graph ends.
    std::shared_ptr<const GraphLife> watch(const Driver& driver, CUgraph graph);
    // Whether some graph has ended since the last call.
    bool take_ended();

  private:
    std::shared_ptr<std::atomic<uint64_t>> ended_graphs_ = std::make_shared<std::atomic<uint64_t>>(0);
    uint64_t taken_ = 0;
};

}  // namespace weft::internal::cuda
