#include "src/simulator/simulated_connections.hpp"

#include <algorithm>

namespace weft::internal {

SimulatedConnections::SimulatedConnections(const Fabric& fabric, int period, SimulatedLinks& links, EventQueue& events,
                                           const std::vector<SimulatedBlock>& blocks)
    : fabric_(fabric),
      period_(period),
      links_(links),
      events_(events),
      blocks_(blocks),
      carrier_free_us_(size_t(period), 0.0) {}

Result<int32_t> SimulatedConnections::add(int channel, int from, int to, int depth) {
    const int distance = (to - from + fabric_.ranks()) % fabric_.ranks(), sender = from % period_;
    const uint64_t key = uint64_t(channel) << 52 | uint64_t(sender) << 26 | uint64_t(distance);
    const auto [place, fresh] = connection_of_.try_emplace(key, int32_t(connections_.size()));
    if (!fresh) return place->second;
    const Route route = fabric_.route(sender, (sender + distance) % fabric_.ranks());
    if (!route.exists) return fail(error::schedule_fabric, "no route connects rank {} to rank {}", from, to);
    for (const int32_t each : route.links)
        if (each < 0 || each >= fabric_.links())
            return fail(error::schedule_fabric, "the route from rank {} to rank {} names link {} of {}", from, to, each,
                        fabric_.links());
    SimulatedConnection& made = connections_.emplace_back();
    made.channel = channel;
    made.from = sender;
    made.distance = distance;
    made.depth = std::max(1, depth);
    made.slots = made.depth + (route.driven ? 0 : Route::window);
    made.first_slot = slots_.size();
    made.costs.path = links_.path_of(route);
    made.costs.latency_us = route.latency_us;
    made.costs.credit_us = route.credit_us;
    made.costs.overhead_us = route.overhead_us;
    made.costs.carrier_us = route.carrier_us;
    made.costs.most = route.bytes_per_us;
    made.costs.driven = route.driven;
    slots_.resize(slots_.size() + size_t(made.slots), SlotTimes{unlimited, 0, 0});
    return place->second;
}

Status SimulatedConnections::check_ends() const {
    for (const SimulatedConnection& each : connections_)
        if (each.sender < 0 || each.receiver < 0)
            return fail(error::schedule_set, "channel {}: rank {} and rank {}: one end of the connection is missing",
                        each.channel, each.from, (each.from + each.distance) % fabric_.ranks());
    return ok();
}

void SimulatedConnections::fill(int32_t number, double bytes, double now_us) {
    SimulatedConnection& out = connections_[size_t(number)];
    SlotTimes& filled = times(out, out.filled++);
    filled.bytes = bytes;
    filled.arrives_us = unlimited;
    ++messages_;
    message_bytes_ += bytes;
    if (!out.costs.driven) return carry(number, now_us);
    ++out.carried;
    arrived(filled, out, now_us + out.costs.latency_us);
}

void SimulatedConnections::release(int32_t number, double now_us) {
    SimulatedConnection& in = connections_[size_t(number)];
    times(in, in.released++).free_us = now_us + in.costs.credit_us;
    if (!in.costs.driven)
        carry(number, now_us);
    else if (blocks_[size_t(in.sender)].phase == BlockPhase::credit)
        events_.push(now_us + in.costs.credit_us, EventKind::wake, in.sender);
}

void SimulatedConnections::carry_event(int32_t number, double now_us) {
    if (connections_[size_t(number)].begins_us <= now_us)
        begin_carrying(number, now_us);
    else
        carry(number, now_us);
}

int32_t SimulatedConnections::flow_ended(int32_t number, double now_us) {
    SimulatedConnection& connection = connections_[size_t(number)];
    connection.carrying = false;
    if (connection.costs.carrier_us > 0) {
        ++connection.carried;
        events_.push(now_us + connection.costs.latency_us - connection.costs.carrier_us, EventKind::arrive, number);
    } else {
        arrived(times(connection, connection.carried++), connection, now_us + connection.costs.latency_us);
    }
    const int32_t waiting = blocks_[size_t(connection.sender)].phase == BlockPhase::credit ? connection.sender : -1;
    carry(number, now_us);
    return waiting;
}

void SimulatedConnections::arrived(SlotTimes& full, const SimulatedConnection& connection, double at_us) {
    full.arrives_us = at_us;
    if (blocks_[size_t(connection.receiver)].phase == BlockPhase::message)
        events_.push(full.arrives_us, EventKind::wake, connection.receiver);
}

// When the carrier thread of the rank begins this work, which takes `takes_us`.
double SimulatedConnections::carrier_begins(int32_t rank, double takes_us, double now_us) {
    const double begins_us = std::max(now_us, carrier_free_us_[size_t(rank)]);
    carrier_free_us_[size_t(rank)] = begins_us + takes_us * fabric_.slowness(rank);
    return begins_us;
}

// A slot arrives with its last byte, at the carrier thread.
void SimulatedConnections::come(int32_t number, double now_us) {
    SimulatedConnection& connection = connections_[size_t(number)];
    const int32_t rank = blocks_[size_t(connection.receiver)].rank;
    carrier_begins(rank, connection.costs.carrier_us, now_us);
    arrived(times(connection, connection.come++), connection, carrier_free_us_[size_t(rank)]);
}

// Slots are carried in order, one at a time while the window is open, as through a socket or the queue of a NIC.
void SimulatedConnections::carry(int32_t number, double now_us) {
    SimulatedConnection& connection = connections_[size_t(number)];
    if (connection.carrying || connection.carried == connection.filled) return;
    if (connection.carried >= uint64_t(Route::window)) {
        const uint64_t before = connection.carried - uint64_t(Route::window);
        if (before >= connection.released) return;
        if (const double opens_us = times(connection, before).free_us; opens_us > now_us)
            return events_.push(opens_us, EventKind::carry, number);
    }
    connection.carrying = true;
    if (connection.costs.carrier_us > 0) {
        connection.begins_us =
            carrier_begins(blocks_[size_t(connection.sender)].rank, connection.costs.carrier_us, now_us);
        if (connection.begins_us > now_us) return events_.push(connection.begins_us, EventKind::carry, number);
    }
    begin_carrying(number, now_us);
}

void SimulatedConnections::begin_carrying(int32_t number, double now_us) {
    SimulatedConnection& connection = connections_[size_t(number)];
    connection.begins_us = unlimited;
    links_.flows().start(now_us, connection.costs.path, times(connection, connection.carried).bytes,
                         connection.costs.most, owner_of_connection(number));
}

}  // namespace weft::internal
