// rails.hpp: which ports of two sides make the rails of a link. choose_rails() is a pure function of both offers.
#pragma once
#include <span>
#include <vector>

#include "src/drivers/verbs/settings.hpp"
#include "transports/verbs/wire.hpp"

namespace weft::internal::verbs {

// A pair of ports, and the GIDs between them. Places in the offers of the choosing and of the other side.
struct RailChoice {
    size_t own = 0, peer = 0;
    GidPair gids;
};

// At most `most` pairs of ports that reach each other, each port once. Both lists begin with the port that is nearest to
// its rank, and the nearest ports of both sides are a pair where they can. Ports of different subnets are pairs only if
// no two ports share a subnet. All are of one link layer: that whose slower end is fastest, or else InfiniBand. Ports with
// different rails in WEFT_IB_DEVICES are none. verbs.path: there is no pair.
Result<std::vector<RailChoice>> choose_rails(std::span<const PortOffer> own, std::span<const PortOffer> peer,
                                             const IbSettings& settings, size_t most);

// With the routes of this host, which decide between pairs of GIDs of different subnets. A long table takes milliseconds.
IbSettings with_routes(IbSettings settings);
// The same as choose_rails(), with the routes if ports of Ethernet share no subnet.
Result<std::vector<RailChoice>> choose_routed_rails(std::span<const PortOffer> own, std::span<const PortOffer> peer,
                                                    const IbSettings& settings, size_t most);

}  // namespace weft::internal::verbs
