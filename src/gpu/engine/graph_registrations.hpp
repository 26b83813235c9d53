// graph_registrations.hpp: registers the buffers of captured calls, so that the graph's kernels use those of other
// processes in place: the addresses are part of the graph. A graph's registrations end with it. Thread-bound to the rank.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "src/gpu/engine/joined_gpu.hpp"

namespace weft::internal {

class GraphRegistrations {
  public:
    // `gpu` must outlive this object.
    explicit GraphRegistrations(JoinedGpu& gpu) : gpu_(gpu) {}

    // Registers the allocation around a buffer for the graph of the capture, unless the user or the graph has done so.
    // Waits until the other processes have mapped it, a second at most for a graph whose buffers are late. A buffer that
    // cannot be registered, or that is late, is staged.
    void add(const void* address, size_t bytes, const cuda::StreamFacts& capture);
    // Ends the registrations of graphs that are gone. It does not wait.
    void collect();

  private:
    // Set by the driver, in any thread, when the graph and all that was made of it are gone.
    struct Life {
        std::shared_ptr<std::atomic<uint64_t>> ended_graphs;
        std::atomic<bool> ended{false};
    };
    struct CapturedGraph {
        uint64_t capture_id;
        std::shared_ptr<Life> life;
        std::vector<int> entries;
        bool late = false;  // another process has not mapped a buffer in time: the capture waits for no further one
    };
    // The graph of the capture; null: the driver does not tell when it ends.
    CapturedGraph* graph_of(const cuda::StreamFacts& capture);
    // False: they have not mapped it within a second.
    bool await_others(const void* address, size_t bytes) const;

    JoinedGpu& gpu_;
    std::shared_ptr<std::atomic<uint64_t>> ended_graphs_ = std::make_shared<std::atomic<uint64_t>>(0);
    uint64_t collected_ = 0;
    std::vector<CapturedGraph> graphs_;
    std::map<int, int> graphs_of_entry_;
    std::vector<int> closing_;  // entries that other processes may still map
};

}  // namespace weft::internal
