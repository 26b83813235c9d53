// graph_registrations.hpp: registers the buffers of captured calls, because the addresses are part of the graph. Its kernels
// then use buffers of other processes in place, or all ranks' behind the switch. A graph's registrations end with it.
// Thread-bound to the rank.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "src/drivers/cuda/graph_life.hpp"
#include "src/gpu/engine/joined_gpu.hpp"

namespace weft::internal {

class GraphRegistrations {
  public:
    // `gpu` must outlive this object.
    explicit GraphRegistrations(JoinedGpu& gpu);

    // Registers the allocation around a buffer for the graph of the capture, unless the user or the graph has done so.
    // Waits until the other processes have mapped it, a second at most for a graph whose buffers are late. A buffer that
    // cannot be registered, or that is late, is staged.
    void add(const void* address, size_t bytes, const cuda::StreamFacts& capture);
    // The same as add() for a buffer that may lie behind the switch. It does not wait.
    void add_switched(uint64_t number, const void* address, size_t bytes, const cuda::StreamFacts& capture);
    // Whether the capture waits for a buffer that other ranks have not put behind the switch yet.
    bool awaits_switch();
    // Ends the registrations of graphs that are gone. It does not wait.
    void collect();

  private:
    struct CapturedGraph {
        uint64_t capture_id;
        std::shared_ptr<const cuda::GraphLife> life;
        std::vector<int> entries = {};
        std::vector<uint64_t> switched = {};  // numbers of SwitchedBuffers
        bool late = false;  // another rank has not mapped a buffer in time: the capture waits for no further one
    };
    // The graph of the capture; null: the driver does not tell when it ends.
    CapturedGraph* graph_of(const cuda::StreamFacts& capture);
    // False: they have not mapped it within a second.
    bool await_others(const void* address, size_t bytes) const;

    JoinedGpu& gpu_;
    cuda::GraphLives lives_;
    std::vector<CapturedGraph> graphs_;
    std::map<int, int> graphs_of_entry_;
    std::vector<int> closing_;       // entries that other processes may still map
    std::vector<uint64_t> awaited_;  // numbers of the call that is being captured
    uint64_t awaiting_capture_ = 0;
    int64_t awaited_until_us_ = 0;
    // Halved by each wait in vain, so that ranks whose captures differ do not lose a second in each.
    int64_t switch_patience_us_;
};

}  // namespace weft::internal
