#include "src/control/check_in.hpp"

#include <algorithm>

namespace weft::internal {

void Placement::write(ByteWriter& to) const {
    to.put(place);
    to.put(uint8_t(wants_machine));
    to.put(parent);
    to.put(process);
    to.put(rank);
    to.put_text(leader);
    to.put_addresses(addresses);
}

Placement Placement::read(ByteReader& from) {
    Placement placement;
    placement.place = from.get<int32_t>();
    placement.wants_machine = from.get<uint8_t>() != 0;
    placement.parent = from.get<int32_t>();
    placement.process = from.get<uint32_t>();
    placement.rank = from.get<int32_t>();
    placement.leader = from.get_text();
    placement.addresses = from.get_addresses();
    return placement;
}

void JoinedReport::write(ByteWriter& to) const {
    to.put(place);
    put_share(to, share);
    to.put(uint32_t(members.size()));
    for (const RankEntry& member : members) member.write(to);
}

JoinedReport JoinedReport::read(ByteReader& from) {
    JoinedReport report;
    report.place = from.get<int32_t>();
    report.share = get_share(from);
    for (uint32_t left = from.get<uint32_t>(); left > 0 && from.ok(); --left)
        report.members.push_back(RankEntry::read(from));
    return report;
}

std::string leader_text(const HostEntry& host) {
    std::vector<int> ranks;
    for (const RankEntry& member : host.members) ranks.push_back(member.rank);
    std::sort(ranks.begin(), ranks.end());
    return fmt::format("process {}, the leader of {} with {}", host.pid, host.text(), ranks_text(ranks));
}

int lowest_rank(const HostEntry& host) {
    const auto first = std::min_element(host.members.begin(), host.members.end(),
                                        [](const auto& one, const auto& other) { return one.rank < other.rank; });
    return first == host.members.end() ? -1 : first->rank;
}

Status leader_lost(const std::string& leader, int rank, const std::string& why) {
    return fail(error::init_rank_died, "{}, ended while the ranks were joining: {}", leader, why).about({.rank = rank});
}

std::string end_text(const Status& why) { return why ? "it closed the connection" : why.sentence(); }

void CheckInTraffic::sent(CheckInFrame kind, size_t bytes) {
    if (kind == CheckInFrame::waiting) return;
    ++frames_sent;
    bytes_sent += bytes;
}

void CheckInTraffic::received(CheckInFrame kind, size_t bytes) {
    if (kind == CheckInFrame::waiting) return;
    ++frames_received;
    bytes_received += bytes;
}

std::string CheckInTraffic::text() const {
    return fmt::format("{} connections; {} frames and {} bytes sent; {} frames and {} bytes received", connections,
                       frames_sent, bytes_sent, frames_received, bytes_received);
}

}  // namespace weft::internal
