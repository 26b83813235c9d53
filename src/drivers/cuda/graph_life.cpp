#include "src/drivers/cuda/graph_life.hpp"

#include <utility>

#include "src/drivers/cuda/stream.hpp"

namespace weft::internal::cuda {

std::shared_ptr<const GraphLife> GraphLives::watch(const Driver& driver, CUgraph graph) {
    auto life = std::make_shared<GraphLife>();
    life->ended_graphs_ = ended_graphs_;
    auto of_driver = std::make_unique<std::shared_ptr<GraphLife>>(life);
    const auto end = [](void* value) {
        const std::unique_ptr<std::shared_ptr<GraphLife>> ours(static_cast<std::shared_ptr<GraphLife>*>(value));
        (*ours)->ended_.store(true, std::memory_order_release);           // pairs with ended()
        (*ours)->ended_graphs_->fetch_add(1, std::memory_order_release);  // pairs with take_ended()
    };
    const RelaxedCapture relaxed(driver);
    CUuserObject object = nullptr;
    if (driver.UserObjectCreate(&object, of_driver.get(), end, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) != CUDA_SUCCESS)
        return nullptr;
    of_driver.release();  // the object's
    if (driver.GraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) != CUDA_SUCCESS) return nullptr;
    return life;
}

bool GraphLives::take_ended() {
    const uint64_t ended = ended_graphs_->load(std::memory_order_acquire);
    return std::exchange(taken_, ended) != ended;
}

}  // namespace weft::internal::cuda
