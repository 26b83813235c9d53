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
    // Memory of closed receivers: the peers may still write there.
    std::vector<std::shared_ptr<Incoming>> closed;
    std::vector<std::unique_ptr<Link>> links;  // by index; null: not connected yet

    Link* link(uint32_t index) { return index < links.size() ? links[index].get() : nullptr; }
    void add(std::unique_ptr<Link> link) {
        for (const Lane& lane : link->lanes())
            if (std::find(queues.begin(), queues.end(), lane.queue) == queues.end()) queues.push_back(lane.queue);
        const size_t index = link->index();
        if (index >= links.size()) links.resize(index + 1);
        links[index] = std::move(link);
    }
};

}  // namespace weft::internal::verbs
