#include "src/selector/network_kinds.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace weft::internal {

namespace {

// Times of the parts of a short message in UCX's cost model of verbs devices (src/uct/ib of UCX 1.22). The data is
// inline, so the device need not fetch the request from memory.
constexpr double post_us = 0.075, doorbell_us = 0.040, completion_us = 0.020;
constexpr double wire_us = 0.600, wire_fdr_us = 0.700, wire_qdr_us = 1.300;  // of EDR to XDR, and of older ones
constexpr double roce_us = 0.200;                                            // more on Ethernet
// A sender posts and takes a completion; a receiver takes one and posts a receive request.
constexpr double message_us = 2 * (post_us + completion_us) + doorbell_us;
constexpr double latency_us(double wire) { return post_us + doorbell_us + wire + completion_us; }

// ib_write_bw's share of the line rate: 96.6 of 100 Gb/s on EDR, 392 of 400 on RoCE. Others are taken to be alike.
constexpr double infiniband_share = 0.966, roce_share = 0.98;
constexpr const char* infiniband_source = "forums.developer.nvidia.com, 273376: ib_write_bw on EDR";
constexpr const char* roce_source = "github.com/NVIDIA/nccl/issues/2409: ib_write_bw on ConnectX-7";

constexpr NetworkKind infiniband(const char* name, int mbps, double wire) {
    return {name, infiniband_source, true, mbps, latency_us(wire), message_us, infiniband_share};
}
constexpr NetworkKind roce(const char* name, int mbps) {
    return {name, roce_source, false, mbps, latency_us(wire_us + roce_us), message_us, roce_share};
}
constexpr NetworkKind kinds[] = {
    infiniband("qdr", 32'000, wire_qdr_us),
    infiniband("fdr", 54'000, wire_fdr_us),
    infiniband("edr", 100'000, wire_us),
    infiniband("hdr", 200'000, wire_us),
    infiniband("ndr", 400'000, wire_us),
    infiniband("xdr", 800'000, wire_us),
    roce("roce-25", 25'000),
    roce("roce-100", 100'000),
    roce("roce-200", 200'000),
    roce("roce-400", 400'000),
    roce("roce-800", 800'000),
};

}  // namespace

std::span<const NetworkKind> network_kinds() { return kinds; }

std::string network_kind_names() {
    std::string names;
    for (const NetworkKind& kind : kinds) names += fmt::format("{}{}", names.empty() ? "" : ", ", kind.name);
    return names;
}

const NetworkKind* find_network_kind(std::string_view name) {
    for (const NetworkKind& kind : kinds)
        if (name == kind.name) return &kind;
    return nullptr;
}

const NetworkKind& network_kind_of(bool infiniband, int64_t mbps) {
    const NetworkKind* best = nullptr;
    for (const NetworkKind& kind : kinds)
        if (kind.infiniband == infiniband && (best == nullptr || mbps <= 0 || kind.mbps <= mbps)) best = &kind;
    return *best;
}

NetworkSpeed speed_of(const NetworkKind& kind, int rails) {
    return {kind.infiniband ? LinkClass::infiniband : LinkClass::roce, kind.mbps, int16_t(rails), INT16_MAX};
}

const NetworkKind* network_kind_of(const NetworkSpeed& speed) {
    if (speed.link == LinkClass::unknown) return nullptr;
    return &network_kind_of(speed.link == LinkClass::infiniband, speed.mbps);
}

int64_t link_mbps(const NetworkKind& kind, const NetworkSpeed& speed) {
    return int64_t(speed.mbps > 0 ? speed.mbps : kind.mbps) * std::max<int>(1, speed.rails);
}

NetworkLinks network_links(const Layout& layout, const NetworkSpeed& speed) {
    const NetworkKind* const kind = layout.host_count() > 1 ? network_kind_of(speed) : nullptr;
    if (!kind) return {};
    // A description also counts ports that have no RDMA.
    int used = 1;
    for (const int32_t rail : layout.rails) used = std::max(used, rail + 1);
    used = std::min<int>(used, speed.ports) / std::max<int>(1, speed.rails);
    return {kind, link_mbps(*kind, speed), std::max(1, used)};
}

LinkCosts over_network(LinkCosts costs, const NetworkKind& kind, int64_t mbps) {
    costs.net_latency_us = kind.latency_us;
    costs.net_message_us = kind.message_us;
    costs.net_us_per_byte = kind.us_per_byte(mbps > 0 ? mbps : kind.mbps);
    return costs;
}

}  // namespace weft::internal
