// flows.hpp: bytes in flight over links that flows share. Each link gives an equal share to each of its flows, and a
// flow is as fast as its slowest link allows. This is not max-min fairness: bandwidth that a flow cannot use is not
// given to others. So no flow is faster than under max-min fairness, and some are slower. A flow that begins or ends
// affects only flows on its own links.
#pragma once
#include <functional>
#include <utility>
#include <vector>

#include "src/simulator/event_queue.hpp"

namespace weft::internal {

class Flows {
  public:
    explicit Flows(EventQueue& events) : events_(events) {}

    int add_link(double bytes_per_us);
    // Of links that were added. A flow names a path by this number.
    int add_path(const std::vector<int32_t>& links);

    // Called whenever the load of a link changes: the link's number, the time, and the new load in bytes a microsecond.
    using Observer = std::function<void(int, double, double)>;
    void observe(Observer observer) { observer_ = std::move(observer); }

    // The number of a flow that has ended is reused. `bytes` > 0. `most`: the upper limit of its speed, in bytes a
    // microsecond.
    int start(double now_us, int path, double bytes, double most, int owner);
    // Whether that event is the end of a flow. The flow is then removed from its links.
    bool ends(double now_us, const SimulatedEvent& event);
    int owner(int flow) const { return flows_[size_t(flow)].owner; }
    // Called after all events of one time. Computes the speeds of flows whose links have gained or lost flows, and puts
    // their ends into the queue.
    void settle(double now_us);

    struct LinkLoad {
        double bytes = 0, busy_us = 0;
    };
    const LinkLoad& use(int link) const { return links_[size_t(link)].use; }

  private:
    struct LinkState {
        double bytes_per_us;
        LinkLoad use;
        double since_us = 0;
        std::vector<int32_t> flows;
        bool changed = false;
        double told = 0;  // load last reported to the observer
    };
    struct Flow {
        int path = -1, owner = -1;
        double bytes = 0, left = 0, most = 0, speed = 0, at_us = 0;
        uint32_t version = 0;
        bool active = false;
        uint64_t settled = 0;  // the call of settle() that computed it
    };
    struct FlowPath {
        size_t first;
        int count;
    };
    void mark(int link);
    void give_speed(double now_us, int number);
    void tell(double now_us);

    EventQueue& events_;
    std::vector<LinkState> links_;
    std::vector<FlowPath> paths_;
    std::vector<int32_t> hops_;  // of all paths
    std::vector<Flow> flows_;
    std::vector<int32_t> free_;
    std::vector<int32_t> changed_;  // links
    std::vector<int32_t> started_;  // flows, since the last settle()
    std::vector<int32_t> touched_;  // links of flows whose speed has changed or that have ended; for the observer
    uint64_t settles_ = 0;
    Observer observer_;
};

}  // namespace weft::internal
