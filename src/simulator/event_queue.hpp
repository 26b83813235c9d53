// event_queue.hpp: the events of a simulation, by time. Events of one time keep the order of their arrival.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace weft::internal {

enum class EventKind : uint8_t { wake, begin_moving, flow_ends, carry, arrive };

struct SimulatedEvent {
    double at_us;
    uint64_t order;
    int32_t subject;        // a block, a flow or a connection
    uint32_t version : 29;  // of a flow: the event is valid if the flow has this version
    uint32_t kind_bits : 3;
    EventKind kind() const { return EventKind(kind_bits); }
};
inline constexpr uint32_t version_mask = (uint32_t(1) << 29) - 1;

class EventQueue {
  public:
    bool empty() const { return heap_.empty(); }
    double next_us() const { return heap_.front().at_us; }
    uint64_t count() const { return order_; }  // events so far
    void push(double at_us, EventKind kind, int32_t subject, uint32_t version = 0) {
        heap_.push_back({at_us, order_++, subject, version & version_mask, uint32_t(kind)});
        std::push_heap(heap_.begin(), heap_.end(), later);
    }
    SimulatedEvent pop() {
        std::pop_heap(heap_.begin(), heap_.end(), later);
        const SimulatedEvent first = heap_.back();
        heap_.pop_back();
        return first;
    }

  private:
    static bool later(const SimulatedEvent& one, const SimulatedEvent& other) {
        return one.at_us != other.at_us ? one.at_us > other.at_us : one.order > other.order;
    }
    std::vector<SimulatedEvent> heap_;
    uint64_t order_ = 0;
};

}  // namespace weft::internal
