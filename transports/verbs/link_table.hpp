// link_table.hpp: the links and completion queues of an endpoint, as its driving thread knows them.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "transports/verbs/link.hpp"

namespace weft::internal::verbs {

// Thread-bound to the thread that drives the endpoint. Links are destroyed before the queues and the slots.
struct LinkTable {
    std::vector<std::shared_ptr<CompletionQueue>> queues;
    std::vector<std::shared_ptr<CompletionQueue>> failed_queues;  // are polled no more
    // Memory of closed receivers: the peers may still write there.
    std::vector<std::shared_ptr<Incoming>> closed;
    std::vector<std::unique_ptr<Link>> links;  // by index; null: not connected yet

    Link* link(uint32_t index) { return index < links.size() ? links[index].get() : nullptr; }
    void add(std::unique_ptr<Link> link) {
        for (const Lane& lane : link->state().lanes)
            if (lane.pair) add(lane.queue);
        const size_t index = link->state().index;
        if (index >= links.size()) links.resize(index + 1);
        links[index] = std::move(link);
        for (const Lane& lane : links[index]->state().lanes)
            if (lane.pair && lane.queue->failed()) fail_queue(lane.queue);
    }
    void install(uint32_t index, size_t place, Lane lane) {
        const std::shared_ptr<CompletionQueue> queue = lane.queue;
        add(queue);
        if (Link* of = link(index)) of->install(place, std::move(lane));
        if (queue->failed()) fail_queue(queue);
    }
    void add(const std::shared_ptr<CompletionQueue>& queue) {
        if (std::find(queues.begin(), queues.end(), queue) == queues.end()) queues.push_back(queue);
    }
    // It reports no completions any more: its lanes are lost, also those that come later.
    void fail_queue(const std::shared_ptr<CompletionQueue>& failed) {
        const std::shared_ptr<CompletionQueue> queue = failed;
        queue->mark_failed();
        if (std::erase(queues, queue) > 0) failed_queues.push_back(queue);
        for (const auto& link : links)
            if (link) link->lose_queue(*queue);
    }
    bool uses(const std::shared_ptr<CompletionQueue>& queue) const {
        return std::any_of(links.begin(), links.end(), [&](const auto& one) {
            return one && std::any_of(one->state().lanes.begin(), one->state().lanes.end(),
                                      [&](const Lane& lane) { return lane.pair && lane.queue == queue; });
        });
    }
    bool recovers() const {
        return std::any_of(links.begin(), links.end(), [](const auto& one) { return one && one->waits_by_time(); });
    }
};

// Receivers whose senders cannot come any more.
inline void fail_unattached(const std::vector<std::shared_ptr<Incoming>>& receivers, const Failure& failure) {
    for (const auto& each : receivers)
        if (each->link == nullptr && each->failure.ok()) each->failure = Status(failure);
}

}  // namespace weft::internal::verbs
