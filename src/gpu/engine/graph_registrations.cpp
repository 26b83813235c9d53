#include "src/gpu/engine/graph_registrations.hpp"

#include <unistd.h>

#include <algorithm>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"

namespace weft::internal {

using cuda::BufferRegistry;

namespace {

// The service threads of the other processes look every 50 ms, and a thread of theirs maps. Ranks capture at about the
// same time.
constexpr int64_t mapping_patience_us = 1'000'000;

}  // namespace

GraphRegistrations::CapturedGraph* GraphRegistrations::graph_of(const cuda::StreamFacts& capture) {
    const auto known = std::find_if(graphs_.begin(), graphs_.end(),
                                    [&](const CapturedGraph& graph) { return graph.capture_id == capture.capture_id; });
    if (known != graphs_.end()) return &*known;
    auto life = lives_.watch(*gpu_.device.driver, capture.graph);
    if (!life) return nullptr;
    return &graphs_.emplace_back(CapturedGraph{capture.capture_id, std::move(life)});
}

GraphRegistrations::GraphRegistrations(JoinedGpu& gpu) : gpu_(gpu), switch_patience_us_(mapping_patience_us) {}

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

void GraphRegistrations::add_switched(uint64_t number, const void* address, size_t bytes,
                                      const cuda::StreamFacts& capture) {
    CapturedGraph* const graph = graph_of(capture);
    if (!graph) return;
    cuda::SwitchedBuffers& switched = *gpu_.domain->switched_buffers();
    const uint64_t taken = switched.capture(number, address, bytes);
    if (taken == 0) return;
    if (std::find(graph->switched.begin(), graph->switched.end(), taken) == graph->switched.end()) {
        graph->switched.push_back(taken);
        switched.hold(taken);
    }
    if (graph->late) return;
    awaited_.push_back(taken);
    awaiting_capture_ = capture.capture_id;
    awaited_until_us_ = now_us() + switch_patience_us_;
}

bool GraphRegistrations::awaits_switch() {
    if (awaited_.empty()) return false;
    cuda::SwitchedBuffers& switched = *gpu_.domain->switched_buffers();
    switched.look();
    std::erase_if(awaited_, [&](uint64_t number) { return !switched.is_coming(number); });
    if (awaited_.empty()) {
        switch_patience_us_ = mapping_patience_us;
        return false;
    }
    const bool aborted = gpu_.group->aborted();
    if (!aborted && now_us() < awaited_until_us_) return true;
    awaited_.clear();
    if (aborted) return false;
    switch_patience_us_ /= 2;
    for (CapturedGraph& graph : graphs_) graph.late |= graph.capture_id == awaiting_capture_;
    WEFT_LOG_RANK(gpu_.rank, info, mem,
                  "buffers are staged in a captured call: not all ranks have put theirs behind the switch in time");
    return false;
}

void GraphRegistrations::collect() {
    if (graphs_.empty() && closing_.empty()) [[likely]]
        return;
    if (!lives_.take_ended() && closing_.empty()) return;
    BufferRegistry& registry = *gpu_.buffer_registry;
    std::erase_if(graphs_, [&](const CapturedGraph& graph) {
        if (!graph.life->ended()) return false;
        for (const int entry : graph.entries) {
            registry.begin_to_remove(entry, BufferRegistry::RegistrationUse::buffer);
            closing_.push_back(entry);
            if (--graphs_of_entry_[entry] == 0) graphs_of_entry_.erase(entry);
        }
        for (const uint64_t number : graph.switched) gpu_.domain->switched_buffers()->release(number);
        return true;
    });
    std::erase_if(closing_, [&](int entry) { return registry.removed(entry); });
}

}  // namespace weft::internal
