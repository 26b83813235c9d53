#include "transports/verbs/lanes/rails.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "src/drivers/verbs/routes.hpp"

namespace weft::internal::verbs {

namespace {

std::string name_of(const PortOffer& port) {
    return fmt::format("{} {}:{}", port.end.host, port.end.device, port.end.port);
}

bool rails_differ(const PortOffer& one, const PortOffer& other) {
    return one.rail >= 0 && other.rail >= 0 && one.rail != other.rail;
}

// Link-local addresses of Ethernet are alike on all networks, so they say nothing about the subnet.
bool share_subnet(const PortOffer& own, const GidPair& pair) {
    const PortGid& gid = own.gids[pair.own];
    return pair.same_subnet && (gid.type == gid_infiniband || !gid.is_link_local());
}

// Leaves pairs of one link layer. InfiniBand needs a common subnet, and routers join those of Ethernet.
void keep_one_layer(std::vector<RailChoice>& possible, std::span<const PortOffer> own,
                    std::span<const PortOffer> peer) {
    const auto ethernet = [&](const RailChoice& one) { return own[one.own].end.link_layer == link_ethernet; };
    const auto key = [&](const RailChoice& one) {
        return std::tuple(ethernet(one) || share_subnet(own[one.own], one.gids),
                          std::min(own[one.own].mbps, peer[one.peer].mbps), !ethernet(one));
    };
    const auto best = std::max_element(possible.begin(), possible.end(),
                                       [&](const RailChoice& a, const RailChoice& b) { return key(a) < key(b); });
    if (best == possible.end()) return;
    const bool takes_ethernet = ethernet(*best);
    std::erase_if(possible, [&](const RailChoice& one) { return ethernet(one) != takes_ethernet; });
}

}  // namespace

Result<std::vector<RailChoice>> choose_rails(std::span<const PortOffer> own, std::span<const PortOffer> peer,
                                             const IbSettings& settings, size_t most) {
    std::vector<RailChoice> possible;
    for (size_t i = 0; i < own.size(); ++i)
        for (size_t k = 0; k < peer.size(); ++k) {
            if (rails_differ(own[i], peer[k]) || own[i].end.link_layer != peer[k].end.link_layer) continue;
            const auto pairs = rank_gid_pairs(own[i].gids, peer[k].gids, settings.gid_rules(own[i].gids));
            if (pairs.empty()) continue;
            possible.push_back({i, k, pairs.front()});
        }
    keep_one_layer(possible, own, peer);
    const bool any_subnet = std::any_of(possible.begin(), possible.end(),
                                        [&](const RailChoice& one) { return share_subnet(own[one.own], one.gids); });
    if (any_subnet)
        std::erase_if(possible, [&](const RailChoice& one) { return !share_subnet(own[one.own], one.gids); });
    std::stable_sort(possible.begin(), possible.end(), [](const RailChoice& one, const RailChoice& other) {
        const auto key = [](const RailChoice& of) { return std::tuple(std::max(of.own, of.peer), of.own + of.peer); };
        return key(one) < key(other);
    });
    std::vector<RailChoice> chosen;
    for (const RailChoice& one : possible) {
        const bool used = std::any_of(chosen.begin(), chosen.end(), [&](const RailChoice& other) {
            return other.own == one.own || other.peer == one.peer;
        });
        if (!used && chosen.size() < most) chosen.push_back(one);
    }
    if (!chosen.empty()) return chosen;
    // The sentence about the two first ports.
    auto none =
        choose_gid_pair(own[0].gids, peer[0].gids, settings.gid_rules(own[0].gids), name_of(own[0]), name_of(peer[0]));
    if (!none) return none.take_status();
    return fail(error::verbs_path, "no ports of {} and {} are on one rail; compare the rails in WEFT_IB_DEVICES",
                own[0].end.host, peer[0].end.host);
}

IbSettings with_routes(IbSettings settings) {
    if (auto routes = read_routes()) settings.gids.routes = std::move(*routes);
    return settings;
}

Result<std::vector<RailChoice>> choose_routed_rails(std::span<const PortOffer> own, std::span<const PortOffer> peer,
                                                    const IbSettings& settings, size_t most) {
    auto rails = choose_rails(own, peer, settings, most);
    const bool routed = rails && std::any_of(rails->begin(), rails->end(), [&](const RailChoice& rail) {
                            return own[rail.own].end.link_layer == link_ethernet && !rail.gids.same_subnet;
                        });
    if (!routed) return rails;
    return choose_rails(own, peer, with_routes(settings), most);
}

}  // namespace weft::internal::verbs
