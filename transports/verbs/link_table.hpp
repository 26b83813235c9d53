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
    }
    void install(uint32_t index, size_t place, Lane lane) {
        add(lane.queue);
        if (Link* of = link(index)) of->install(place, std::move(lane));
    }
    void add(const std::shared_ptr<CompletionQueue>& queue) {
        if (std::find(queues.begin(), queues.end(), queue) == queues.end()) queues.push_back(queue);
    }
    // It reports no completions any more: its lanes are lost.
    void fail_queue(size_t place) {
        failed_queues.push_back(queues[place]);
        queues.erase(queues.begin() + ptrdiff_t(place));
        for (const auto& link : links)
            if (link) link->lose_queue(*failed_queues.back());
    }
    void fail_queue(const abi::Queue* queue) {
        for (size_t place = 0; place < queues.size(); ++place)
            if (queues[place]->get() == queue) return fail_queue(place);
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
