#include "src/simulator/hosts_fabric.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace weft::internal {

namespace {

// NVLink: the links of a device times NCCL's value for one link (20, 20.6, 40.1 GB/s by generation), which is the line
// rate less the overhead. Memory: half of the data sheet, because a copy reads and writes. Blocks: NCCL's value for a
// channel. Times: NCCL's for rings with the protocol Simple; for messages to other hosts the proxy thread adds
// net_overhead_us, as on hosts of threads. Adapters: the line rate.
constexpr const char* nccl = "NCCL 2.30's tuning constants; NVIDIA's data sheets";
// The values of src/schedule/layout.hpp, with the memory of a socket with eight channels of DDR4.
constexpr const char* link_costs = "Weft's LinkCosts, measured on virtual machines";

constexpr HostKind dgx_a100{.name = "dgx-a100",
                            .source = nccl,
                            .ranks = 8,
                            .channels = 10,
                            .devices = true,
                            .peer_bytes_per_us = 240e3,
                            .memory_bytes_per_us = 1.0e6,
                            .net_bytes_per_us = 25e3,
                            .block_bytes_per_us = 24e3,
                            .gang = 16,
                            .step_us = 0,
                            .peer_us = 3.4,
                            .net_us = 14,
                            .net_overhead_us = 0,
                            .signal_us = 1.0,
                            .start_us = 8.4,
                            .slot_bytes = 256 << 10,
                            .packet_bytes_per_us = 87.7e3,
                            .carrier_us = 2};
constexpr HostKind cpu_10g{.name = "cpu-10g",
                           .source = link_costs,
                           .ranks = 8,
                           .channels = 1,
                           .devices = false,
                           .peer_bytes_per_us = 15e3,
                           .memory_bytes_per_us = 75e3,
                           .net_bytes_per_us = 1.2e3,
                           .block_bytes_per_us = 15e3,
                           .gang = 1,
                           .step_us = 0.4,
                           .peer_us = 0.12,
                           .net_us = 8,
                           .net_overhead_us = 2,
                           .signal_us = 0.12,
                           .start_us = 0,
                           .slot_bytes = 256 << 10,
                           .cache_bytes = 4 << 20};

// Only what newer machines have more; times are NCCL's for all of them.
constexpr HostKind dgx_h100 = [] {
    HostKind kind = dgx_a100;
    kind.name = "dgx-h100";
    kind.channels = 11;
    kind.peer_bytes_per_us = 370.8e3;
    kind.memory_bytes_per_us = 1.67e6;
    kind.net_bytes_per_us = 50e3;
    kind.block_bytes_per_us = 36.7e3;
    kind.packet_bytes_per_us = 141e3;
    return kind;
}();
constexpr HostKind dgx_h200 = [] {
    HostKind kind = dgx_h100;
    kind.name = "dgx-h200";
    kind.memory_bytes_per_us = 2.4e6;
    return kind;
}();
constexpr HostKind dgx_b200 = [] {
    HostKind kind = dgx_h100;
    kind.name = "dgx-b200";
    kind.channels = 19;
    kind.peer_bytes_per_us = 721.8e3;
    kind.memory_bytes_per_us = 4.0e6;
    kind.block_bytes_per_us = 40e3;
    kind.packet_bytes_per_us = 282e3;
    return kind;
}();
constexpr HostKind gb200_nvl72 = [] {
    HostKind kind = dgx_b200;
    kind.name = "gb200-nvl72";
    kind.ranks = 72;
    return kind;
}();
constexpr HostKind cpu_100g = [] {
    HostKind kind = cpu_10g;
    kind.name = "cpu-100g";
    kind.net_bytes_per_us = 12e3;
    return kind;
}();
constexpr HostKind kinds[] = {dgx_a100, dgx_h100, dgx_h200, dgx_b200, gb200_nvl72, cpu_10g, cpu_100g};

struct ProtocolCosts {
    const char* name;
    double efficiency;                         // payload bytes over bytes on the wire
    double base_us[2], peer_us[2], net_us[2];  // of rings, trees
};
// By Protocol. NCCL 2.30, src/graph/tuning.cc.
constexpr ProtocolCosts protocols[] = {
    {"simple", 1, {8.4, 8.4}, {3.4, 4.0}, {14, 14}},
    {"ll128", 120.0 / 128, {14, 14}, {1.9, 1.25}, {4.0, 8.5}},
    {"ll", 0.5, {6.6, 6.8}, {0.6, 0.6}, {2.7, 5.0}},
};

}  // namespace

std::span<const HostKind> host_kinds() { return kinds; }

std::string host_kind_names() {
    std::string names;
    for (const HostKind& kind : kinds) names += fmt::format("{}{}", names.empty() ? "" : ", ", kind.name);
    return names;
}

const HostKind* find_host_kind(std::string_view name) {
    for (const HostKind& kind : kinds)
        if (name == kind.name) return &kind;
    return nullptr;
}

std::optional<Protocol> protocol_named(std::string_view name) {
    for (size_t each = 0; each < std::size(protocols); ++each)
        if (name == protocols[each].name) return Protocol(each);
    return {};
}

HostKind with_protocol(HostKind kind, Protocol protocol, bool tree) {
    if (!kind.devices) return kind;
    const ProtocolCosts& costs = protocols[size_t(protocol)];
    kind.start_us = costs.base_us[tree];
    kind.peer_us = costs.peer_us[tree];
    kind.net_us = costs.net_us[tree];
    kind.peer_bytes_per_us *= costs.efficiency;
    kind.net_bytes_per_us *= costs.efficiency;
    kind.efficiency = costs.efficiency;
    if (protocol == Protocol::ll) kind.connection_bytes_per_us = kind.packet_bytes_per_us;
    kind.peer_bytes_per_us = std::min(kind.peer_bytes_per_us, kind.connection_bytes_per_us);
    return kind;
}

HostKind with_working_set(HostKind kind, size_t bytes) {
    if (!kind.devices && double(bytes) <= kind.cache_bytes) kind.memory_bytes_per_us = unlimited;
    return kind;
}

Result<HostKind> with_constant(HostKind kind, std::string_view name, double value) {
    struct KindConstant {
        const char* name;
        double HostKind::*place;
    };
    static constexpr KindConstant constants[] = {
        {"peer_bytes_per_us", &HostKind::peer_bytes_per_us},
        {"memory_bytes_per_us", &HostKind::memory_bytes_per_us},
        {"net_bytes_per_us", &HostKind::net_bytes_per_us},
        {"block_bytes_per_us", &HostKind::block_bytes_per_us},
        {"packet_bytes_per_us", &HostKind::packet_bytes_per_us},
        {"step_us", &HostKind::step_us},
        {"peer_us", &HostKind::peer_us},
        {"net_us", &HostKind::net_us},
        {"net_overhead_us", &HostKind::net_overhead_us},
        {"carrier_us", &HostKind::carrier_us},
        {"signal_us", &HostKind::signal_us},
        {"start_us", &HostKind::start_us},
        {"cache_bytes", &HostKind::cache_bytes},
    };
    std::string names;
    for (const KindConstant& each : constants) {
        names += fmt::format("{}{}", names.empty() ? "" : ", ", each.name);
        if (name != each.name) continue;
        const bool speed = name.ends_with("_per_us");
        // Sums of times of such hosts stay in the range of a double.
        if (!(value >= (speed ? 1e-6 : 0)) || !(value <= 1e15))
            return fail(error::schedule_fabric, "{} must be a number from {} to 1e15", name, speed ? "1e-6" : "0");
        kind.*each.place = value;
        return kind;
    }
    return fail(error::schedule_fabric, "constant `{}` does not exist; the constants are {}", name, names);
}

double carrier_us_of(const HostKind& kind) { return kind.devices ? std::min(kind.carrier_us, kind.net_us / 2) : 0; }

RankCosts rank_costs_of(const HostKind& kind, int hosts) {
    return {.step_us = kind.step_us,
            .copy_bytes_per_us = kind.block_bytes_per_us,
            .reduce_bytes_per_us = kind.block_bytes_per_us,
            .gang = kind.gang,
            .one_thread = !kind.devices,
            .signal_us = kind.signal_us,
            .start_us = kind.start_us,
            .slot_bytes = hosts == 1 && !kind.devices ? kind.slot_bytes / 2 : kind.slot_bytes};
}

HostsFabric::HostsFabric(const HostKind& kind, int hosts, int ranks_a_host)
    : kind_(kind), hosts_(hosts), ranks_a_host_(ranks_a_host), costs_(rank_costs_of(kind, hosts)) {
    for (int role = 0, first = 0; role <= roles_; ++role) {
        firsts_[role] = first;
        first += by_host(Role(role)) ? hosts : hosts * ranks_a_host;
    }
}

HostsFabric::Role HostsFabric::role_of(int link) const {
    int role = 0;
    while (link >= firsts_[role + 1]) ++role;
    return Role(role);
}

double HostsFabric::bytes_per_us(int link) const {
    switch (role_of(link)) {
        case memory: return kind_.memory_bytes_per_us;
        case net_out:
        case net_in: return kind_.net_bytes_per_us;
        default: return kind_.peer_bytes_per_us;
    }
}

std::string HostsFabric::link_name(int link) const {
    const Role role = role_of(link);
    static constexpr const char* of_devices[] = {"NVLink out of rank", "NVLink into rank", "memory of rank",
                                                 "network out of rank", "network into rank"};
    static constexpr const char* of_threads[] = {"core of rank", "", "memory of host", "network out of host",
                                                 "network into host"};
    return fmt::format("{} {}", kind_.devices ? of_devices[role] : of_threads[role], link - firsts_[role]);
}

Route HostsFabric::route(int from, int to) const {
    if (host_of(from) != host_of(to))
        return {.links = {link(net_out, from), link(net_in, to)},
                .latency_us = kind_.net_us,
                .credit_us = kind_.net_us,
                .overhead_us = kind_.net_overhead_us,
                .carrier_us = carrier_us_of(kind_),
                .driven = false};
    Route route{.latency_us = kind_.peer_us, .credit_us = kind_.peer_us};
    if (kind_.devices)
        route.links = {link(out, from), link(in, to)};
    else
        route.links = {link(out, from), link(memory, from)};
    return route;
}

Route HostsFabric::local(int rank) const {
    if (kind_.devices) return {.links = {link(memory, rank)}};
    return {.links = {link(out, rank), link(memory, rank)}};
}

Route HostsFabric::reading(int rank, int owner) const {
    return kind_.devices ? Route{.links = {link(out, owner), link(in, rank)}} : local(rank);
}

Fabric::Turned HostsFabric::turned(int link) const {
    const Role role = role_of(link);
    const int owner = link - firsts_[role];
    if (!by_host(role)) return {firsts_[role] + owner % rotation(), 1};
    return {firsts_[role], hosts_ == 1 ? ranks() : 1};
}

std::vector<int32_t> HostsFabric::hosts() const {
    std::vector<int32_t> of;
    for (int rank = 0; hosts_ > 1 && rank < ranks(); ++rank) of.push_back(host_of(rank));
    return of;
}

}  // namespace weft::internal
