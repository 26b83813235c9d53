// registry.hpp: the tables of all algorithms and transports.
#pragma once
#include <span>
#include <string_view>

#include "algorithms/algorithm.hpp"
#include "transports/transport.hpp"

namespace weft::internal::registry {

std::span<const Algorithm> algorithms();
// Null: there is none of that name for that collective.
const Algorithm* find_algorithm(std::string_view name, Collective collective = Collective::all_reduce);

std::span<const Transport* const> transports();  // in order of preference
Status plugin_trouble();                         // why a transport that the user asks for cannot be used
// The wrong option for RDMA on this host: option.value, option.names or option.conflict. A host without RDMA is ok.
Status rdma_trouble();

// The networks (Transport::networks()) that this rank reaches. The ranks exchange them when they meet, so that both ends of
// a connection choose the same transport.
Networks own_networks();
// The transport that two ranks use, by the networks of the lower and of the higher one; null: they have none in common.
const Transport* agreed_transport(const Networks& lower, const Networks& higher);
// The same for two ranks that have met.
const Transport* agreed_transport(const Segment& group, int one, int other);
// The longest Transport::repeat_us() of the transports that the user allows.
int64_t longest_repeat_us();
// Null: 0, or this process has announced no such network.
const Transport* transport_of(uint16_t mark);

}  // namespace weft::internal::registry
