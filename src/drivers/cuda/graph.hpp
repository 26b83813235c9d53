// graph.hpp: work of a stream that is captured once and replayed, for benchmarks and tests. The library captures
// nothing.
#pragma once
#include <utility>

#include "src/drivers/cuda/context.hpp"

namespace weft::internal::cuda {

// The work that was enqueued on a stream between begin() and end(). Thread-bound to the capturing thread. Any thread
// may launch it.
class Graph {
  public:
    Graph() = default;
    static Status begin(const Driver& driver, CUstream stream,
                        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    static Result<Graph> end(const Driver& driver, CUstream stream);
    Graph(Graph&& other) noexcept { *this = std::move(other); }
    Graph& operator=(Graph&& other) noexcept;
    ~Graph();

    Status launch(CUstream stream) const;

  private:
    const Driver* driver_ = nullptr;
    CUgraph graph_ = nullptr;
    CUgraphExec executable_ = nullptr;
};

}  // namespace weft::internal::cuda
