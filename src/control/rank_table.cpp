#include "src/control/rank_table.hpp"

#include <algorithm>
#include <map>

namespace weft::internal {

void RankEntry::write(ByteWriter& to) const {
    to.put(rank);
    to.put(pid);
    to.put(cpu);
    // Most ranks have one or two.
    const auto used =
        std::count_if(networks.begin(), networks.end(), [](const NetworkFacts& each) { return each.mark; });
    to.put(uint8_t(used));
    for (const NetworkFacts& each : networks)
        if (each.mark != 0) to.put(each);
    to.put(device.use);
    if (device.use != DeviceFacts::none) to.put(device);
}

RankEntry RankEntry::read(ByteReader& from) {
    RankEntry member;
    member.rank = from.get<int32_t>();
    member.pid = from.get<int32_t>();
    member.cpu = from.get<int32_t>();
    const size_t used = std::min<size_t>(from.get<uint8_t>(), member.networks.size());
    for (size_t i = 0; i < used; ++i) member.networks[i] = from.get<NetworkFacts>();
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
    to.put(process);
    to.put(ranks);
    to.put(boot);
    put_share(to, share);
    to.put(link_mbps);
    to.put_bytes(machine.domain);
    to.put(machine_digest);
    to.put_failure(refusal);
    to.put_addresses(addresses);
    to.put(uint32_t(members.size()));
    for (const RankEntry& member : members) member.write(to);
}

HostEntry HostEntry::read(ByteReader& from) {
    HostEntry entry;
    entry.identity = from.get<uint64_t>();
    entry.name = from.get_text();
    entry.pid = from.get<int32_t>();
    entry.process = from.get<uint32_t>();
    entry.ranks = from.get<int32_t>();
    entry.boot = from.get<uint64_t>();
    entry.share = get_share(from);
    entry.link_mbps = from.get<int64_t>();
    entry.machine.domain = from.get_bytes();
    entry.machine_digest = from.get<net::Digest>();
    entry.refusal = from.get_optional_failure();
    entry.addresses = from.get_addresses();
    for (uint32_t left = from.get<uint32_t>(); left > 0 && from.ok(); --left)
        entry.members.push_back(RankEntry::read(from));
    return entry;
}

void put_share(ByteWriter& to, const CpuShare& share) {
    to.put(share.cpus);
    to.put(uint8_t(share.unlimited));
    to.put(uint32_t(share.quotas.size()));
    for (const auto& [group, cores] : share.quotas) to.put(CpuQuota{group, cores});
}

CpuShare get_share(ByteReader& from) {
    CpuShare share;
    share.cpus = from.get<CpuSet>();
    share.unlimited = from.get<uint8_t>() != 0;
    for (uint32_t left = from.get<uint32_t>(); left > 0 && from.ok(); --left) share.add({}, from.get<CpuQuota>());
    return share;
}

void RankTable::write(ByteWriter& to) const {
    to.put(agreed);
    to.put(facts);
    texts.write(to);
    to.put(uint32_t(hosts.size()));
    for (const HostEntry& host : hosts) {
        to.put_text(host.name);
        to.put(host.pid);
        to.put(host.process);
        to.put_addresses(host.addresses);
        to.put(uint32_t(host.members.size()));
        for (const RankEntry& member : host.members) member.write(to);
    }
}

RankTable RankTable::read(ByteReader& from) {
    RankTable rank_table;
    rank_table.agreed = from.get<AgreedOptions>();
    rank_table.facts = from.get<AgreedFacts>();
    rank_table.texts = AgreedTexts::read(from);
    const uint32_t hosts = from.get<uint32_t>();
    rank_table.hosts.reserve(std::min<size_t>(hosts, from.left()));
    for (uint32_t left = hosts; left > 0 && from.ok(); --left) {
        HostEntry& host = rank_table.hosts.emplace_back();
        host.name = from.get_text();
        host.pid = from.get<int32_t>();
        host.process = from.get<uint32_t>();
        host.addresses = from.get_addresses();
        const uint32_t members = from.get<uint32_t>();
        host.members.reserve(std::min<size_t>(members, from.left()));
        for (uint32_t rest = members; rest > 0 && from.ok(); --rest) host.members.push_back(RankEntry::read(from));
    }
    return rank_table;
}

std::string RankTable::text(int host) const {
    const HostEntry& entry = hosts[size_t(host)];
    std::vector<int> ranks;
    for (const RankEntry& member : entry.members) ranks.push_back(member.rank);
    return fmt::format("host {} with {}", entry.text(), ranks_text(ranks));
}

// The first network of the first rank that all ranks reach. A pair of ranks may prefer another one.
static NetworkFacts common_network(const std::vector<HostEntry>& hosts) {
    if (hosts.empty() || hosts[0].members.empty()) return {};
    for (NetworkFacts network : hosts[0].members[0].networks) {
        bool all = network.mark != 0;
        for (const HostEntry& host : hosts)
            for (const RankEntry& member : host.members) {
                const NetworkFacts* its = find_network(member.networks, network.mark);
                all = all && its && its->speed.link == network.speed.link;
                if (!all) continue;
                network.speed.rails = std::min(network.speed.rails, its->speed.rails);
                network.speed.ports = std::min(network.speed.ports, its->speed.ports);
                if (its->speed.mbps > 0 && (network.speed.mbps == 0 || its->speed.mbps < network.speed.mbps))
                    network.speed.mbps = its->speed.mbps;
            }
        if (all) return network;
    }
    return {};
}

AgreedFacts facts_of(const std::vector<HostEntry>& hosts) {
    struct Machine {
        CpuShare share;
        int ranks = 0;
    };
    std::map<std::pair<uint64_t, uint64_t>, Machine> machines;
    AgreedFacts facts{.hosts = int32_t(hosts.size()),
                      .machines = 0,
                      .ranks_per_core = 1,
                      .link_mbps = 0,
                      .network = common_network(hosts)};
    for (const HostEntry& host : hosts) {
        Machine& machine = machines[{host.boot, host.boot == 0 ? host.identity : 0}];
        machine.share |= host.share;
        machine.ranks += int(host.members.size());
        if (host.link_mbps > 0 && (facts.link_mbps == 0 || host.link_mbps < facts.link_mbps))
            facts.link_mbps = host.link_mbps;
    }
    facts.machines = int32_t(machines.size());
    if (facts.machines == 1) facts.link_mbps = 0;
    for (const auto& [boot, machine] : machines) {
        const int cores = machine.share.cores();
        facts.ranks_per_core = std::max(facts.ranks_per_core, int32_t((machine.ranks + cores - 1) / cores));
    }
    return facts;
}

}  // namespace weft::internal
