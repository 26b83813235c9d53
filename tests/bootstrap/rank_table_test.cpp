// rank_table_test.cpp: the facts that follow from all hosts' entries.
#include "src/control/rank_table.hpp"

#include "tests/catch.hpp"

namespace weft::internal::test {

namespace {

HostEntry host_of(uint64_t boot, int ranks, int first_cpu, int cpus, int64_t link_mbps, CpuQuota quota = {}) {
    HostEntry host;
    host.identity = uint64_t(first_cpu) + 1;
    host.boot = boot;
    host.link_mbps = link_mbps;
    host.members.resize(size_t(ranks));
    CpuSet set;
    for (int cpu = first_cpu; cpu < first_cpu + cpus; ++cpu) set.words[cpu / 64] |= 1ull << (cpu % 64);
    host.share.add(set, quota);
    return host;
}

}  // namespace

TEST_CASE("hosts that are one machine use its memory speed, with any network", "[rank_table]") {
    const AgreedFacts one = facts_of({host_of(7, 2, 0, 4, 10'000), host_of(7, 2, 0, 4, 10'000)});
    CHECK(one.hosts == 2);
    CHECK(one.machines == 1);
    CHECK(one.link_mbps == 0);
    const AgreedFacts two =
        facts_of({host_of(7, 2, 0, 4, 25'000), host_of(8, 2, 0, 4, 10'000), host_of(7, 1, 0, 4, 0)});
    CHECK(two.hosts == 3);
    CHECK(two.machines == 2);
    CHECK(two.link_mbps == 10'000);
    // A host that does not know its machine's boot time counts as a machine.
    CHECK(facts_of({host_of(0, 1, 0, 1, 0), host_of(0, 1, 1, 1, 0)}).machines == 2);
}

TEST_CASE("the network of a job is the first one of rank 0 that all ranks reach, with the slowest port",
          "[rank_table]") {
    const NetworkFacts fast{1, {LinkClass::infiniband, 400'000}}, slow{1, {LinkClass::infiniband, 200'000}},
        silent{1, {LinkClass::infiniband, 0}}, ethernet{1, {LinkClass::roce, 400'000}}, plugin{2, {}},
        other{3, {LinkClass::roce, 100'000}};
    const auto network_of = [](std::vector<Networks> ranks) {
        std::vector<HostEntry> hosts{host_of(7, 0, 0, 4, 0), host_of(8, 0, 0, 4, 0)};
        for (size_t rank = 0; rank < ranks.size(); ++rank)
            hosts[rank % 2].members.push_back({.rank = int32_t(rank), .networks = ranks[rank]});
        return facts_of(hosts).network;
    };
    CHECK(network_of({{fast}, {fast}}) == fast);
    CHECK(network_of({{fast}, {slow}, {fast}, {silent}}) == slow);
    CHECK(network_of({{silent}, {silent}}) == silent);
    // A link has as many rails as both of its ends.
    const NetworkFacts two_rails{1, {LinkClass::infiniband, 200'000, 2}},
        four_rails{1, {LinkClass::infiniband, 400'000, 4}};
    CHECK(network_of({{two_rails}, {four_rails}}) == two_rails);
    CHECK(network_of({{four_rails}, {slow}}) == slow);
    // A host has as many links as the one with the fewest ports.
    const NetworkFacts two_ports{1, {LinkClass::infiniband, 200'000, 1, 2}},
        eight_ports{1, {LinkClass::infiniband, 200'000, 1, 8}};
    CHECK(network_of({{eight_ports}, {two_ports}}) == two_ports);
    CHECK(network_of({{eight_ports}, {eight_ports}}) == eight_ports);
    CHECK(network_of({{plugin, fast}, {fast}}) == fast);
    CHECK(network_of({{plugin, fast}, {fast, plugin}}) == plugin);
    CHECK(network_of({{fast, other}, {other}, {fast, other}}) == other);
    // A rank without the network, or with another one, goes over TCP.
    for (const Networks& odd : {Networks{}, Networks{other}, Networks{ethernet}})
        CHECK(network_of({{fast}, {fast}, odd, {fast}}) == NetworkFacts{});
    // Ranks keep it on the way to the root.
    ByteWriter written;
    RankEntry{.rank = 3, .networks = {plugin, slow}}.write(written);
    ByteReader reader(written.bytes().data(), written.bytes().size());
    CHECK(RankEntry::read(reader).networks == Networks{plugin, slow});
    CHECK(reader.at_end());
}

TEST_CASE("hosts that are one machine share its processors", "[rank_table]") {
    CHECK(facts_of({host_of(7, 2, 0, 4, 0), host_of(7, 2, 0, 4, 0)}).ranks_per_core == 1);
    CHECK(facts_of({host_of(7, 4, 0, 4, 0), host_of(7, 3, 0, 4, 0)}).ranks_per_core == 2);
    CHECK(facts_of({host_of(7, 4, 0, 4, 0), host_of(7, 4, 4, 4, 0)}).ranks_per_core == 1);
    // Of the machine where it is most.
    CHECK(facts_of({host_of(7, 4, 0, 4, 0), host_of(8, 9, 0, 4, 0)}).ranks_per_core == 3);
}

TEST_CASE("ranks of a control group share its time, as far as all are limited", "[rank_table]") {
    const auto ranks_per_core = [](CpuQuota one, CpuQuota other) {
        return facts_of({host_of(7, 4, 0, 16, 0, one), host_of(7, 4, 0, 16, 0, other)}).ranks_per_core;
    };
    CHECK(ranks_per_core({1, 2}, {1, 2}) == 4);
    CHECK(ranks_per_core({1, 2}, {2, 2}) == 2);
    CHECK(ranks_per_core({1, 2}, {0, 0}) == 1);
    CHECK(ranks_per_core({1, 0.5}, {1, 0.5}) == 8);
    CHECK(ranks_per_core({1, 300}, {2, 300}) == 1);
}

TEST_CASE("the limits of a host's ranks survive their message", "[rank_table]") {
    CpuShare share;
    share.add(allowed_cpus(), {77, 2.5});
    share.add({}, {78, 1});
    share.add({}, {});
    ByteWriter written;
    put_share(written, share);
    ByteReader reader(written.bytes().data(), written.bytes().size());
    const CpuShare read = get_share(reader);
    CHECK(reader.at_end());
    CHECK(read.cpus.count() == share.cpus.count());
    CHECK(read.quotas == share.quotas);
    CHECK(read.unlimited);
}

}  // namespace weft::internal::test
