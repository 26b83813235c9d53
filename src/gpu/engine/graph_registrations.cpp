#include "src/gpu/engine/graph_registrations.hpp"

#include <unistd.h>

#include <algorithm>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"

namespace weft::internal {

using cuda::BufferRegistry;

namespace {

// The service threads of the other processes look every 50 ms, and a thread of theirs maps.
constexpr int64_t mapping_patience_us = 1'000'000;

}  // namespace

GraphRegistrations::CapturedGraph* GraphRegistrations::graph_of(const cuda::StreamFacts& capture) {
    const auto known = std::find_if(graphs_.begin(), graphs_.end(),
                                    [&](const CapturedGraph& graph) { return graph.capture_id == capture.capture_id; });
    if (known != graphs_.end()) return &*known;
    auto life = std::make_shared<Life>();
    life->ended_graphs = ended_graphs_;
    auto of_driver = std::make_unique<std::shared_ptr<Life>>(life);
    const auto end = [](void* value) {
        const std::unique_ptr<std::shared_ptr<Life>> ours(static_cast<std::shared_ptr<Life>*>(value));
        (*ours)->ended.store(true, std::memory_order_release);           // pairs with collect()
        (*ours)->ended_graphs->fetch_add(1, std::memory_order_release);  // pairs with collect()
    };
    const cuda::Driver& driver = *gpu_.device.driver;
    const cuda::RelaxedCapture relaxed(driver);
    CUuserObject object = nullptr;
    if (driver.UserObjectCreate(&object, of_driver.get(), end, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) != CUDA_SUCCESS)
        return nullptr;
    of_driver.release();  // the object's
    if (driver.GraphRetainUserObject(capture.graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) != CUDA_SUCCESS)
        return nullptr;
    return &graphs_.emplace_back(CapturedGraph{capture.capture_id, std::move(life), {}});
}

void GraphRegistrations::add(const void* address, size_t bytes, const cuda::StreamFacts& capture) {
    BufferRegistry& registry = *gpu_.buffer_registry;
    if (const int entry = registry.entry_around(address, bytes); entry >= 0) {
        // The user's own registrations are the user's to keep.
        if (!graphs_of_entry_.contains(entry)) return;
        for (const CapturedGraph& graph : graphs_)
            if (graph.capture_id == capture.capture_id &&
                std::find(graph.entries.begin(), graph.entries.end(), entry) != graph.entries.end())
                return;
    }
    CapturedGraph* const graph = graph_of(capture);
    if (!graph) return;
    const auto entry = registry.add(address, bytes, BufferRegistry::RegistrationUse::buffer);
    if (!entry) {
        WEFT_LOG_RANK(gpu_.rank, info, mem, "{} bytes at {} are staged in a captured call: {}", bytes, address,
                      entry.status().sentence());
        return;
    }
    graph->entries.push_back(*entry);
    ++graphs_of_entry_[*entry];
    if (!graph->late) graph->late = !await_others(address, bytes);
}

bool GraphRegistrations::await_others(const void* address, size_t bytes) const {
    std::byte* at[cuda::ranks_max];
    for (const int64_t until_us = now_us() + mapping_patience_us; !gpu_.buffer_registry->find(address, bytes, true, at);
         usleep(500)) {
        gpu_.buffer_registry->look();
        if (gpu_.group->aborted()) return false;
        if (now_us() < until_us) continue;
        WEFT_LOG_RANK(
            gpu_.rank, info, mem,
            "{} bytes at {} are staged in a captured call: other processes have not mapped them within a second", bytes,
            address);
        return false;
    }
    return true;
}

void GraphRegistrations::collect() {
    if (graphs_.empty() && closing_.empty()) [[likely]]
        return;
    const uint64_t ended = ended_graphs_->load(std::memory_order_acquire);
    if (ended == collected_ && closing_.empty()) return;
    collected_ = ended;
    BufferRegistry& registry = *gpu_.buffer_registry;
    std::erase_if(graphs_, [&](const CapturedGraph& graph) {
        if (!graph.life->ended.load(std::memory_order_acquire)) return false;
        for (const int entry : graph.entries) {
            registry.begin_to_remove(entry, BufferRegistry::RegistrationUse::buffer);
            closing_.push_back(entry);
            if (--graphs_of_entry_[entry] == 0) graphs_of_entry_.erase(entry);
        }
        return true;
    });
    std::erase_if(closing_, [&](int entry) { return registry.removed(entry); });
}

}  // namespace weft::internal
