#include "transports/verbs/site.hpp"

#include <algorithm>

namespace weft::internal::verbs {

Result<std::shared_ptr<CompletionQueue>> QueueRoom::reserve(const Devices& devices, size_t device, int entries) {
    constexpr int first_entries = 8'192;
    std::erase_if(queues_, [](const Queue& each) { return each.queue->failed(); });
    int size = first_entries;
    for (Queue& queue : queues_) {
        if (queue.device != device) continue;
        if (queue.left >= entries) {
            queue.left -= entries;
            return queue.queue;
        }
        size *= 2;
    }
    const Context& context = *devices.all()[device].context;
    size = std::max(entries, std::min(size, context.facts().limits.queue_entries));
    auto made = CompletionQueue::make(context, size, true);
    if (!made) return made.take_status();
    queues_.push_back({device, std::shared_ptr<CompletionQueue>(std::move(*made)), size - entries});
    return queues_.back().queue;
}

void QueueRoom::give_back(const std::shared_ptr<CompletionQueue>& queue, int entries) {
    for (Queue& each : queues_)
        if (each.queue == queue) each.left += entries;
}

std::shared_ptr<CompletionQueue> QueueRoom::fail(const abi::Queue* queue) {
    const auto found = std::find_if(queues_.begin(), queues_.end(), [&](const Queue& each) {
        return each.queue->get() == queue && !each.queue->failed();
    });
    if (found == queues_.end()) return nullptr;
    found->queue->mark_failed();
    return found->queue;
}

Receivers Site::listening_to(int peer) const {
    Receivers all;
    for (const auto& [number, incoming] : listening)
        if (incoming->shape.peer == peer) all.push_back(incoming);
    return all;
}

}  // namespace weft::internal::verbs
