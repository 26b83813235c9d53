// network_kinds.hpp: the costs of networks between hosts that RDMA devices drive: a table by generation. Values.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "src/schedule/layout.hpp"
#include "src/segment/networks.hpp"

namespace weft::internal {

struct NetworkKind {
    const char* name;    // "ndr", "roce-400"
    const char* source;  // of the efficiency
    bool infiniband;
    int mbps;           // line rate of a port of four lanes
    double latency_us;  // of a short message from memory to memory, between idle ranks
    double message_us;  // processor time of a message at both ends together
    double efficiency;  // of long messages: payload over line rate
    double us_per_byte(int64_t of_mbps) const { return 8 / (double(of_mbps) * efficiency); }
};

// Processor time that the proxies of both ranks add to a message between kernels. verbs_proxy_test measures it on a NIC
// that completes at once, so NetworkKind::message_us comes on top.
inline constexpr double proxy_message_us = 0.5;

// Processor time of a message between kernels, at both ends together.
inline double proxied_message_us(const NetworkKind& kind) { return kind.message_us + proxy_message_us; }

// By class, then by speed.
std::span<const NetworkKind> network_kinds();
std::string network_kind_names();  // "edr, hdr, ..."
// null: there is no such kind.
const NetworkKind* find_network_kind(std::string_view name);
// The fastest kind that is not faster than the port, or the slowest of the class.
// 0: the fastest kind, because only the newest ports do not tell their speed.
const NetworkKind& network_kind_of(bool infiniband, int64_t mbps);

// Of hosts with enough ports for every rail.
NetworkSpeed speed_of(const NetworkKind& kind, int rails);

// Null: the costs of TCP apply.
const NetworkKind* network_kind_of(const NetworkSpeed& speed);

// Of a link, whose ports carry messages at once.
int64_t link_mbps(const NetworkKind& kind, const NetworkSpeed& speed);

// The network between hosts of a layout, as predictions count it. Equal on all ranks, as its arguments are.
struct NetworkLinks {
    const NetworkKind* kind = nullptr;  // null: TCP, whose connections share one link of a host
    int64_t mbps = 0;                   // of a link; without a kind unknown
    int links = 1;                      // of each host: the ports that its ranks use by their rails
};
NetworkLinks network_links(const Layout& layout, const NetworkSpeed& speed);

// The costs with this network between the hosts. `mbps`: of a link, if it is not the kind's line rate; 0: it is.
LinkCosts over_network(LinkCosts costs, const NetworkKind& kind, int64_t mbps = 0);

}  // namespace weft::internal
