// flows.hpp: bytes on their way over links that they share. A flow goes as fast as the slowest of its links lets it: a
// link gives each of the flows on it the same share. That is not max-min fairness, which hands on what a flow leaves
// over because it is held up elsewhere: so no flow ever goes faster than it would by that, some slower, and a flow that
// begins or ends changes nobody but those on its own links.
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
    // Of links that were added; flows name it by its number.
    int add_path(const std::vector<int32_t>& links);

    // Told what a link carries from then on, whenever that changes: its number, the time, bytes a microsecond.
    using Observer = std::function<void(int, double, double)>;
    void observe(Observer observer) { observer_ = std::move(observer); }

    // Of one that has ended the number is given again. `bytes` > 0; `most`: bytes a microsecond, whatever links allow.
    int start(double now_us, int path, double bytes, double most, int owner);
    // Whether that event is a flow's end: then it is off its links.
    bool ends(double now_us, const SimulatedEvent& event);
    int owner(int flow) const { return flows_[size_t(flow)].owner; }
    // When all that happens at a time has: gives those a new speed whose links have won or lost flows, and tells the
    // queue when they end.
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
        double told = 0;  // to the observer
    };
    struct Flow {
        int path = -1, owner = -1;
        double bytes = 0, left = 0, most = 0, speed = 0, at_us = 0;
        uint32_t version = 0;
        bool active = false;
        uint64_t settled = 0;  // in which call of settle()
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
