// networks.hpp: the networks that a rank reaches by other transports than TCP, as it tells them when the ranks meet. Values.
#pragma once
#include <array>
#include <cstdint>

namespace weft::internal {

// unknown: costs are those of TCP.
enum class LinkClass : uint16_t { unknown, infiniband, roce };

struct NetworkSpeed {
    LinkClass link = LinkClass::unknown;
    int32_t mbps = 0;   // of the slowest port: its line rate, or its share of a bus; 0: unknown
    int16_t rails = 1;  // ports that carry the messages of two ranks at once
    int16_t ports = 1;  // that the rank may use; each rank takes the nearest to it. Ports that share a bus count less
    bool operator==(const NetworkSpeed&) const = default;
};

struct NetworkFacts {
    uint16_t mark = 0;  // of a transport and its network, equal on all ranks that reach it; 0: none
    NetworkSpeed speed;
    bool operator==(const NetworkFacts&) const = default;
};

// In order of preference. Hosts with eight rails may have a subnet of InfiniBand for each.
using Networks = std::array<NetworkFacts, 10>;

inline const NetworkFacts* find_network(const Networks& networks, uint16_t mark) {
    for (const NetworkFacts& each : networks)
        if (mark != 0 && each.mark == mark) return &each;
    return nullptr;
}

}  // namespace weft::internal
