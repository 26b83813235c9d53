#include "src/simulator/flows.hpp"

namespace weft::internal {

int Flows::add_link(double bytes_per_us) {
    links_.push_back({bytes_per_us, {}, 0, {}, false, 0});
    return int(links_.size()) - 1;
}

int Flows::add_path(const std::vector<int32_t>& links) {
    paths_.push_back({hops_.size(), int(links.size())});
    hops_.insert(hops_.end(), links.begin(), links.end());
    return int(paths_.size()) - 1;
}

void Flows::mark(int link) {
    if (links_[size_t(link)].changed) return;
    links_[size_t(link)].changed = true;
    changed_.push_back(link);
}

int Flows::start(double now_us, int path, double bytes, double most, int owner) {
    int number = int(flows_.size());
    if (free_.empty()) {
        flows_.emplace_back();
    } else {
        number = free_.back();
        free_.pop_back();
    }
    Flow& flow = flows_[size_t(number)];
    flow = {path, owner, bytes, bytes, most, 0, now_us, flow.version + 1, true, 0};
    for (int hop = 0; hop < paths_[size_t(path)].count; ++hop) {
        const int32_t each = hops_[paths_[size_t(path)].first + size_t(hop)];
        LinkState& link = links_[size_t(each)];
        if (link.flows.empty()) link.since_us = now_us;
        link.flows.push_back(number);
        mark(each);
    }
    started_.push_back(number);
    return number;
}

bool Flows::ends(double now_us, const SimulatedEvent& event) {
    Flow& flow = flows_[size_t(event.subject)];
    if (!flow.active || (flow.version & version_mask) != event.version) return false;
    flow.active = false;
    for (int hop = 0; hop < paths_[size_t(flow.path)].count; ++hop) {
        const int32_t each = hops_[paths_[size_t(flow.path)].first + size_t(hop)];
        LinkState& link = links_[size_t(each)];
        link.use.bytes += flow.bytes;
        *std::find(link.flows.begin(), link.flows.end(), event.subject) = link.flows.back();
        link.flows.pop_back();
        if (link.flows.empty()) link.use.busy_us += now_us - link.since_us;
        mark(each);
    }
    free_.push_back(event.subject);
    return true;
}

void Flows::settle(double now_us) {
    ++settles_;
    for (const int32_t each : changed_)
        for (const int32_t number : links_[size_t(each)].flows)
            if (flows_[size_t(number)].settled != settles_) give_speed(now_us, number);
    // Flows that share no link.
    for (const int32_t number : started_)
        if (flows_[size_t(number)].settled != settles_) give_speed(now_us, number);
    for (const int32_t each : changed_) links_[size_t(each)].changed = false;
    if (observer_) tell(now_us);
    changed_.clear();
    started_.clear();
}

void Flows::tell(double now_us) {
    touched_.insert(touched_.end(), changed_.begin(), changed_.end());
    for (const int32_t each : touched_) {
        LinkState& link = links_[size_t(each)];
        double carries = 0;
        for (const int32_t number : link.flows) carries += flows_[size_t(number)].speed;
        if (carries != link.told) observer_(each, now_us, link.told = carries);
    }
    touched_.clear();
}

void Flows::give_speed(double now_us, int number) {
    Flow& flow = flows_[size_t(number)];
    flow.settled = settles_;
    double speed = flow.most;
    for (int hop = 0; hop < paths_[size_t(flow.path)].count; ++hop) {
        const LinkState& link = links_[size_t(hops_[paths_[size_t(flow.path)].first + size_t(hop)])];
        speed = std::min(speed, link.bytes_per_us / double(link.flows.size()));
    }
    if (speed == flow.speed) return;
    if (flow.speed > 0) flow.left = std::max(0.0, flow.left - flow.speed * (now_us - flow.at_us));
    flow.at_us = now_us;
    flow.speed = speed;
    if (observer_)
        for (int hop = 0; hop < paths_[size_t(flow.path)].count; ++hop)
            touched_.push_back(hops_[paths_[size_t(flow.path)].first + size_t(hop)]);
    // Unlimited speed takes no time.
    events_.push(now_us + flow.left / speed, EventKind::flow_ends, number, ++flow.version);
}

}  // namespace weft::internal
