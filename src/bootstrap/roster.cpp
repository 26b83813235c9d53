#include "src/bootstrap/roster.hpp"

#include <algorithm>

namespace weft {

namespace {
constexpr size_t text_most = 1000, addresses_most = 32;
}

void ByteWriter::append(const void* data, size_t bytes) {
    const size_t before = bytes_.size();
    bytes_.resize(before + bytes);
    if (bytes > 0) memcpy(bytes_.data() + before, data, bytes);
}

void ByteWriter::put_text(std::string_view text) {
    text = text.substr(0, text_most);
    put(uint16_t(text.size()));
    append(text.data(), text.size());
}

void ByteWriter::put_addresses(const std::vector<net::Address>& addresses) {
    const size_t count = std::min(addresses.size(), addresses_most);
    put(uint8_t(count));
    for (size_t i = 0; i < count; ++i) addresses[i].pack(bytes_);
}

std::string ByteReader::get_text() {
    const size_t length = get<uint16_t>();
    if (!ok_ || size_t(end_ - at_) < length) return ok_ = false, std::string();
    std::string text(reinterpret_cast<const char*>(at_), length);
    at_ += length;
    return text;
}

ByteWriter ByteReader::rest() const {
    ByteWriter copy;
    copy.append(at_, size_t(end_ - at_));
    return copy;
}

std::vector<net::Address> ByteReader::get_addresses() {
    std::vector<net::Address> addresses;
    for (int left = get<uint8_t>(); left > 0; --left) {
        const auto address = net::Address::unpack(at_, end_);
        if (!address) return ok_ = false, addresses;
        addresses.push_back(*address);
    }
    return addresses;
}

void RosterRank::write(ByteWriter& to) const {
    to.put(rank);
    to.put(pid);
    to.put(device.use);
    if (device.use != DeviceFacts::none) to.put(device);
}

RosterRank RosterRank::read(ByteReader& from) {
    RosterRank member;
    member.rank = from.get<int32_t>();
    member.pid = from.get<int32_t>();
    if (from.get<DeviceFacts::Use>() != DeviceFacts::none) member.device = from.get<DeviceFacts>();
    return member;
}

std::string HostEntry::text() const {
    return addresses.empty() ? name : fmt::format("{} ({})", name, addresses.front().text());
}

void HostEntry::write(ByteWriter& to) const {
    to.put(identity);
    to.put_text(name);
    to.put(pid);
    to.put(ranks);
    to.put(cores);
    to.put(link_mbps);
    to.put_addresses(addresses);
    to.put(uint32_t(members.size()));
    for (const RosterRank& member : members) member.write(to);
}

HostEntry HostEntry::read(ByteReader& from) {
    HostEntry entry;
    entry.identity = from.get<uint64_t>();
    entry.name = from.get_text();
    entry.pid = from.get<int32_t>();
    entry.ranks = from.get<int32_t>();
    entry.cores = from.get<int32_t>();
    entry.link_mbps = from.get<int64_t>();
    entry.addresses = from.get_addresses();
    for (uint32_t left = from.get<uint32_t>(); left > 0 && from.ok(); --left)
        entry.members.push_back(RosterRank::read(from));
    return entry;
}

void Roster::write(ByteWriter& to) const {
    to.put(agreed);
    to.put(facts);
    to.put(uint32_t(hosts.size()));
    for (const HostEntry& host : hosts) {
        to.put_text(host.name);
        to.put(host.pid);
        to.put_addresses(host.addresses);
        to.put(uint32_t(host.members.size()));
        for (const RosterRank& member : host.members) member.write(to);
    }
}

Roster Roster::read(ByteReader& from) {
    Roster roster;
    roster.agreed = from.get<AgreedOptions>();
    roster.facts = from.get<AgreedFacts>();
    const uint32_t hosts = from.get<uint32_t>();
    roster.hosts.reserve(std::min<size_t>(hosts, from.left()));
    for (uint32_t left = hosts; left > 0 && from.ok(); --left) {
        HostEntry& host = roster.hosts.emplace_back();
        host.name = from.get_text();
        host.pid = from.get<int32_t>();
        host.addresses = from.get_addresses();
        const uint32_t members = from.get<uint32_t>();
        host.members.reserve(std::min<size_t>(members, from.left()));
        for (uint32_t rest = members; rest > 0 && from.ok(); --rest) host.members.push_back(RosterRank::read(from));
    }
    return roster;
}

std::string Roster::text(int host) const {
    const HostEntry& entry = hosts[size_t(host)];
    std::vector<int> ranks;
    for (const RosterRank& member : entry.members) ranks.push_back(member.rank);
    return fmt::format("host {} with {}", entry.text(), ranks_text(ranks));
}

std::string ranks_text(const std::vector<int>& ascending) {
    constexpr int most_runs = 8;
    std::string text = ascending.size() == 1 ? "rank " : "ranks ";
    int runs = 0;
    for (size_t first = 0; first < ascending.size();) {
        size_t last = first;
        while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) ++last;
        if (++runs > most_runs) return text + fmt::format(" and {} more", ascending.size() - first);
        if (runs > 1) text += ", ";
        text += last > first ? fmt::format("{} to {}", ascending[first], ascending[last])
                             : fmt::format("{}", ascending[first]);
        first = last + 1;
    }
    return text;
}

}  // namespace weft
