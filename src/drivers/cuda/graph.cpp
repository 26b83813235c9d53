#include "src/drivers/cuda/graph.hpp"

namespace weft::internal::cuda {

Status Graph::begin(const Driver& driver, CUstream stream, CUstreamCaptureMode mode) {
    return driver.check(driver.StreamBeginCapture(stream, mode), "begin to capture a stream");
}

Result<Graph> Graph::end(const Driver& driver, CUstream stream) {
    Graph graph;
    graph.driver_ = &driver;
    WEFT_TRY(driver.check(driver.StreamEndCapture(stream, &graph.graph_), "capture a stream"));
    WEFT_TRY(
        driver.check(driver.GraphInstantiateWithFlags(&graph.executable_, graph.graph_, 0), "make a graph runnable"));
    return graph;
}

Graph& Graph::operator=(Graph&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(graph_, other.graph_);
    std::swap(executable_, other.executable_);
    return *this;
}

Graph::~Graph() {
    if (driver_ == nullptr || !driver_->here()) return;
    if (executable_ != nullptr) driver_->GraphExecDestroy(executable_);
    if (graph_ != nullptr) driver_->GraphDestroy(graph_);
}

Status Graph::launch(CUstream stream) const {
    return driver_->check(driver_->GraphLaunch(executable_, stream), "launch a graph");
}

}  // namespace weft::internal::cuda
