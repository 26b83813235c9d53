// The costs of RDMA networks, and their predictions for hosts of eight GPUs with eight ports beside published bandwidths.
// docs/design/rdma-costs.md has the table.
#include "src/selector/network_kinds.hpp"

#include <cmath>
#include <cstdio>

#include "src/gpu/engine/device_steps.hpp"
#include "src/registry.hpp"
#include "src/selector/built_in_costs.hpp"
#include "src/selector/selector.hpp"
#include "src/simulator/hosts_fabric.hpp"
#include "src/simulator/simulator.hpp"
#include "tests/amount.hpp"
#include "tests/catch.hpp"

namespace weft::internal {
namespace {

constexpr int devices = 8;
constexpr size_t gib = size_t(1) << 30;

double bus_gbs(int ranks, double bytes, double us) { return bytes / us / 1e3 * 2 * (ranks - 1) / ranks; }

// Each rank at a port of its own.
Layout layout_of(int hosts) {
    Layout layout = layout_in_blocks(hosts * devices, hosts);
    for (int rank = 0; rank < layout.ranks; ++rank) layout.rails.push_back(rank % devices);
    return layout;
}

// As in src/gpu/engine/device_steps.cpp, if the links between the devices are the limit. A processor makes five passes
// over the data of an all-reduce on two levels. Of these, two go over links on devices: to the owner of a shard, and back.
LinkCosts costs_of(const HostKind& host, const NetworkKind& network) {
    LinkCosts costs = over_network(network_link_costs(1, 0), network);
    costs.net_links = devices;
    costs.net_by_kernels = true;
    costs.signal_us = host.signal_us;
    costs.cached_us_per_byte = costs.memory_us_per_byte = 2.0 / 5 / host.peer_bytes_per_us;
    costs.net_latency_us += proxies_us;
    costs.net_message_us = proxied_message_us(network);
    costs.tile_bytes = 16 << 20;
    return costs;
}

Choice choice_of(int hosts, const LinkCosts& costs, size_t bytes) {
    Operation operation;
    operation.collective = Collective::all_reduce;
    operation.type = weftFloat32;
    operation.op = weftSum;
    operation.count = bytes / 4;
    // Rows that device memory does not have.
    const Preferences preferences{
        .algo = "^two_level_ring,^two_level_tree,^two_level_doubling,^two_level_halving_doubling,^leader_doubling"};
    auto choice = select(operation, layout_of(hosts), costs, preferences, registry::algorithms());
    REQUIRE(choice);
    return *choice;
}

// NCCL's rings: one for each port, by which it leaves each host.
double rings_us(const HostKind& host, const NetworkKind& network, int hosts, size_t bytes) {
    HostKind kind = host;
    kind.net_bytes_per_us = 1 / network.us_per_byte(network.mbps);
    kind.block_bytes_per_us = unlimited;
    const HostsFabric fabric(kind, hosts, devices);
    Layout layout{fabric.ranks(), 0, fabric.hosts()};
    for (int channel = 0; channel < devices; ++channel) {
        std::vector<int32_t>& order = layout.ring_orders.emplace_back();
        for (int place = 0; place < layout.ranks; ++place)
            order.push_back(place / devices * devices + (place + channel) % devices);
    }
    const Algorithm& row = *registry::find_algorithm("ring", Collective::all_reduce);
    SimulatedCall call;
    call.bytes = bytes;
    call.wanted_tile_bytes = bytes;
    call.schedule = [&](int rank) {
        layout.rank = rank;
        return row.build(layout, {.channels = devices});
    };
    auto found = simulate(fabric, call);
    REQUIRE(found);
    return found->us;
}

struct Published {
    const char *host, *network, *what;
    int hosts;
    double gbs;
    bool rings;  // NCCL's; otherwise two levels, as Weft chooses
};
constexpr Published published[] = {
    {"dgx-a100", "hdr", "NCCL, 2 and more hosts (NVIDIA/nccl#778)", 2, 192, true},
    {"dgx-a100", "hdr", "NCCL, 2 and more hosts (NVIDIA/nccl#778)", 4, 192, true},
    {"dgx-a100", "hdr", "NCCL, 2 and more hosts (NVIDIA/nccl#778)", 16, 192, false},
    {"dgx-a100", "hdr", "NCCL, 2 and more hosts (NVIDIA/nccl#778)", 1'024, 192, false},
    {"dgx-a100", "hdr", "MSCCL++, 2 hosts, 3 GB", 2, 236, false},
    {"dgx-h100", "ndr", "MSCCL++, 2 hosts, 3 GB", 2, 378, false},
    {"dgx-b200", "roce-400", "NCCL, 8 ports of RoCE of 400 Gb/s (NVIDIA/aicr#1413)", 2, 387, true},
    {"dgx-b200", "roce-400", "NCCL, 8 ports of RoCE of 400 Gb/s (NVIDIA/aicr#1413)", 16, 387, false},
};

}  // namespace

TEST_CASE("each generation of RDMA has costs, and a port has those of its generation", "[network]") {
    for (const NetworkKind& kind : network_kinds()) {
        INFO(kind.name);
        CHECK(find_network_kind(kind.name) == &kind);
        CHECK(&network_kind_of(kind.infiniband, kind.mbps) == &kind);
        const LinkCosts costs = over_network({}, kind);
        CHECK(costs.net_latency_us < LinkCosts{}.net_latency_us);
        CHECK(costs.net_us_per_byte == Approx(8 / (kind.mbps * kind.efficiency)));
        CHECK(over_network({}, kind, kind.mbps / 2).net_us_per_byte == Approx(2 * costs.net_us_per_byte));
    }
    CHECK(find_network_kind("myrinet") == nullptr);
    CHECK(std::string(network_kind_of(true, 1'600'000).name) == "xdr");
    CHECK(std::string(network_kind_of(true, 10'000).name) == "qdr");
    CHECK(std::string(network_kind_of(false, 56'000).name) == "roce-25");
    // A port that does not tell its speed is of the newest generation.
    CHECK(std::string(network_kind_of({LinkClass::infiniband, 0})->name) == "xdr");
    CHECK(std::string(network_kind_of({LinkClass::roce, 0})->name) == "roce-800");
    CHECK(std::string(network_kind_of({LinkClass::roce, 100'000})->name) == "roce-100");
    CHECK(network_kind_of(NetworkSpeed{}) == nullptr);
    // ib_send_lat between two ConnectX-5: 0.83 us.
    CHECK(find_network_kind("edr")->latency_us == Approx(0.83).epsilon(0.25));
}

TEST_CASE("a link over several ports is as wide as all of them, and a short message is no faster", "[network]") {
    for (const int32_t mbps : {400'000, 100'000, 0}) {
        const auto costs = [&](int16_t rails) {
            const NetworkSpeed speed{LinkClass::infiniband, mbps, rails};
            const NetworkKind& kind = *network_kind_of(speed);
            return over_network(network_link_costs(1, 0), kind, link_mbps(kind, speed));
        };
        INFO(mbps);
        for (const int16_t rails : {2, 4, 8}) {
            CHECK(costs(rails).net_us_per_byte == Approx(costs(1).net_us_per_byte / rails));
            CHECK(costs(rails).net_latency_us == costs(1).net_latency_us);
        }
    }
    // The time of a long message between two hosts with a rank each.
    Operation operation;
    operation.collective = Collective::broadcast;
    operation.type = weftInt8;
    operation.count = 256 << 20;
    const auto predicted_us = [&](int16_t rails) {
        const NetworkSpeed speed{LinkClass::infiniband, 10'000, rails};
        const NetworkKind& kind = *network_kind_of(speed);
        LinkCosts costs = over_network(network_link_costs(1, 0), kind, link_mbps(kind, speed));
        const auto choice = select(operation, layout_in_blocks(2, 2), costs, {}, registry::algorithms());
        REQUIRE(choice);
        return choice->predicted.us;
    };
    CHECK(predicted_us(2) / predicted_us(1) == Approx(0.5).margin(0.1));
}

TEST_CASE("predicted bandwidths of hosts with eight ports are near published ones", "[network]") {
    std::printf("%-9s %-9s %5s %9s %9s %6s  %s\n", "host", "network", "hosts", "published", "predicted", "ratio", "by");
    for (const Published& row : published) {
        const HostKind& host = *find_host_kind(row.host);
        const NetworkKind& network = *find_network_kind(row.network);
        const int ranks = row.hosts * devices;
        double us = 0;
        std::string by = "ring on each port";
        if (row.rings) {
            us = rings_us(host, network, row.hosts, 4 * gib);
        } else {
            const Choice choice = choice_of(row.hosts, costs_of(host, network), 4 * gib);
            us = choice.predicted.us;
            by = choice.algorithm->name;
        }
        const double gbs = bus_gbs(ranks, double(4 * gib), us);
        std::printf("%-9s %-9s %5d %9.0f %9.0f %6.2f  %s; %s\n", row.host, row.network, row.hosts, row.gbs, gbs,
                    gbs / row.gbs, by.c_str(), row.what);
        INFO(row.what << ", " << row.hosts << " hosts");
        CHECK(gbs / row.gbs > 0.75);
        CHECK(gbs / row.gbs < 1.25);
    }
}

TEST_CASE("with RDMA the choice for each number of hosts stays below the limit of its links", "[network]") {
    std::printf("%5s %10s %10s %12s  %s\n", "hosts", "network", "bytes", "predicted us", "choice");
    for (const char* name : {"hdr", "ndr", "xdr", "roce-400"}) {
        const NetworkKind& network = *find_network_kind(name);
        const HostKind& host = *find_host_kind(network.mbps > 400'000 ? "dgx-b200" : "dgx-h100");
        double before = 0;
        for (int hosts = 2; hosts <= 1'024; hosts *= test::small() ? 8 : 2) {
            for (const size_t bytes : {size_t(8), size_t(1) << 20, gib}) {
                const Choice choice = choice_of(hosts, costs_of(host, network), bytes);
                std::printf("%5d %10s %10zu %12.2f  %s\n", hosts, name, bytes, choice.predicted.us,
                            choice.algorithm->name);
                // All-reduce between the hosts moves 2(N-1)/N of a port's share, and takes a message at least.
                const double least =
                    2.0 * (hosts - 1) / hosts * double(bytes) / devices * network.us_per_byte(network.mbps);
                CHECK(choice.predicted.us >= least);
                CHECK(choice.predicted.us >= network.latency_us);
                if (bytes == 8) {
                    CHECK(choice.predicted.us >= before);
                    before = choice.predicted.us;
                }
            }
        }
    }
}

}  // namespace weft::internal
