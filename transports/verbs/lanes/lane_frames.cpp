#include "transports/verbs/lanes/lane_frames.hpp"

#include <algorithm>

namespace weft::internal::verbs {

const LaneReport::Connection* LaneReport::find(uint32_t connection) const {
    const auto found = std::find_if(connections.begin(), connections.end(),
                                    [&](const Connection& one) { return one.connection == connection; });
    return found == connections.end() ? nullptr : &*found;
}

void LaneReport::write(ByteWriter& to) const {
    to.put(id);
    to.put_failure(cause);
    to.put(uint32_t(connections.size()));
    for (const Connection& each : connections) {
        to.put(each.connection);
        to.put(each.released);
        to.put(uint32_t(each.messages.size()));
        for (const Message& message : each.messages) {
            to.put(message.number);
            to.put(message.parts);
        }
    }
}

std::optional<LaneReport> LaneReport::read(ByteReader& from) {
    LaneReport report;
    report.id = from.get<LaneId>();
    report.cause = from.get_failure();
    const auto count = from.get<uint32_t>();
    if (count > Immediate::connections_most) return {};
    for (uint32_t i = 0; i < count && from.ok(); ++i) {
        Connection each{.connection = from.get<uint32_t>(), .released = from.get<uint64_t>(), .messages = {}};
        const auto messages = from.get<uint32_t>();
        if (messages > Immediate::depth_most) return {};
        for (uint32_t k = 0; k < messages && from.ok(); ++k) {
            const auto number = from.get<uint64_t>();
            each.messages.push_back({number, from.get<uint32_t>()});
        }
        report.connections.push_back(std::move(each));
    }
    if (!from.at_end()) return {};
    return report;
}

void LaneOffer::write(ByteWriter& to) const {
    to.put(id);
    port.write(to);
    to.put(pair);
    to.put(gid);
    to.put(peer_gid);
    to.put(probe.address);
    to.put(probe.key);
}

std::optional<LaneOffer> LaneOffer::read(ByteReader& from) {
    LaneOffer offer;
    offer.id = from.get<LaneId>();
    auto port = PortOffer::read(from);
    if (!port) return {};
    offer.port = std::move(*port);
    offer.pair = from.get<PairNumber>();
    offer.gid = from.get<uint32_t>();
    offer.peer_gid = from.get<uint32_t>();
    offer.probe.address = from.get<uint64_t>();
    offer.probe.key = from.get<uint32_t>();
    if (!from.at_end()) return {};
    return offer;
}

}  // namespace weft::internal::verbs
