#include "src/drivers/verbs/gid.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <tuple>

namespace weft::internal::verbs {

namespace {

constexpr std::array<uint8_t, 12> mapped_ipv4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

const char* kind_text(GidClass kind) {
    switch (kind) {
        case GidClass::infiniband: return "InfiniBand";
        case GidClass::v2_ipv4: return "RoCE v2, IPv4";
        case GidClass::v2_global: return "RoCE v2, IPv6";
        case GidClass::v2_link_local: return "RoCE v2, link-local";
        case GidClass::v1_ipv4: return "RoCE v1, IPv4";
        case GidClass::v1_global: return "RoCE v1, IPv6";
        case GidClass::v1_link_local: return "RoCE v1, link-local";
    }
    return "";
}

// The prefix that both ends must share to be in one subnet, of 128 bits.
int subnet_bits(const PortGid& gid, const GidRules& rules) {
    if (!gid.is_ipv4()) return gid.prefix_bits > 0 && gid.type != gid_infiniband ? gid.prefix_bits : 64;
    return 96 + (gid.prefix_bits > 0 ? gid.prefix_bits : rules.subnet_bits_ipv4);
}

// Why the rules exclude a GID, or null.
const char* excluded(const PortGid& gid, const GidRules& rules) {
    if (std::all_of(gid.bytes.begin(), gid.bytes.end(), [](uint8_t byte) { return byte == 0; })) return "empty";
    if (gid.interface_down) return "its network device is down";
    if (gid.refused != 0) return "the kernel refuses it";
    if (gid.type == gid_infiniband) return nullptr;
    if (rules.roce_version != 0 && gid.type != (rules.roce_version == 1 ? gid_roce_v1 : gid_roce_v2))
        return "another RoCE version";
    if (rules.family != AddressFamily::any && gid.is_ipv4() != (rules.family == AddressFamily::ipv4))
        return "another address family";
    if (rules.range && !rules.range->holds(gid)) return "outside the address range";
    return nullptr;
}

bool fit(const PortGid& own, const PortGid& peer) {
    return own.type == peer.type && own.is_ipv4() == peer.is_ipv4() &&
           (own.type == gid_infiniband || own.is_link_local() == peer.is_link_local());
}

std::string pair_reason(const PortGid& own, const PortGid& peer, bool same_subnet) {
    std::string text = fmt::format("{}, {}", kind_text(own.kind()), same_subnet ? "same subnet" : "another subnet");
    if (own.type != gid_infiniband && own.interface.empty()) text += ", own network device invisible";
    if (peer.type != gid_infiniband && peer.interface.empty()) text += ", peer's network device invisible";
    return text;
}

std::string listed(std::span<const PortGid> gids, const GidRules& rules) {
    std::string text;
    for (const PortGid& gid : gids) {
        const char* why = excluded(gid, rules);
        text += fmt::format("{}index {} {} ({}{}{})", text.empty() ? "" : "; ", gid.index, gid.address(),
                            kind_text(gid.kind()), why ? ", " : "", why ? why : "");
    }
    return text.empty() ? "no GID" : text;
}

}  // namespace

bool same_prefix(const std::array<uint8_t, 16>& one, const std::array<uint8_t, 16>& other, int bits) {
    const size_t whole = size_t(bits) / 8, rest = size_t(bits) % 8;
    if (!std::equal(one.begin(), one.begin() + whole, other.begin())) return false;
    const uint8_t mask = uint8_t(0xff00 >> rest);
    return rest == 0 || ((one[whole] ^ other[whole]) & mask) == 0;
}

bool PortGid::is_ipv4() const { return std::equal(mapped_ipv4.begin(), mapped_ipv4.end(), bytes.begin()); }

bool PortGid::is_link_local() const { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }

GidClass PortGid::kind() const {
    if (type == gid_infiniband) return GidClass::infiniband;
    const bool second = type == gid_roce_v2;
    if (is_ipv4()) return second ? GidClass::v2_ipv4 : GidClass::v1_ipv4;
    if (is_link_local()) return second ? GidClass::v2_link_local : GidClass::v1_link_local;
    return second ? GidClass::v2_global : GidClass::v1_global;
}

std::string PortGid::address() const {
    char text[INET6_ADDRSTRLEN] = "";
    if (is_ipv4())
        inet_ntop(AF_INET, bytes.data() + 12, text, sizeof text);
    else
        inet_ntop(AF_INET6, bytes.data(), text, sizeof text);
    return text;
}

bool AddressRange::holds(const PortGid& gid) const {
    return gid.is_ipv4() == ipv4 && same_prefix(gid.bytes, bytes, bits);
}

Result<AddressRange> read_address_range(const char* variable, std::string_view text) {
    AddressRange range;
    const size_t slash = text.find('/');
    const std::string address(text.substr(0, slash));
    if (in_addr ipv4; inet_pton(AF_INET, address.c_str(), &ipv4) == 1) {
        range.ipv4 = true;
        std::copy(mapped_ipv4.begin(), mapped_ipv4.end(), range.bytes.begin());
        memcpy(range.bytes.data() + 12, &ipv4, 4);
    } else if (in6_addr ipv6; inet_pton(AF_INET6, address.c_str(), &ipv6) == 1) {
        memcpy(range.bytes.data(), &ipv6, 16);
    } else {
        return fail(error::option_value, "{} is `{}`; it is a range of addresses, such as 10.1.0.0/16 or fd00::/8",
                    variable, text);
    }
    const int least = range.ipv4 ? 96 : 0;
    int bits = 128 - least;
    if (slash != std::string_view::npos) {
        const std::string_view number = text.substr(slash + 1);
        const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), bits);
        if (error != std::errc() || end != number.data() + number.size() || bits < 0 || bits > 128 - least)
            return fail(error::option_value, "{} is `{}`; the length of its prefix is 0 to {}", variable, text,
                        128 - least);
    }
    range.bits = least + bits;
    return range;
}

bool has_gid_index(std::span<const PortGid> gids, int index) {
    return index < 0 || std::any_of(gids.begin(), gids.end(), [&](const PortGid& gid) { return gid.index == index; });
}

Status check_gid_index(std::span<const PortGid> gids, const GidRules& rules, std::string_view name) {
    if (has_gid_index(gids, rules.index)) return ok();
    return fail(error::option_value, "{} has no GID of index {}; it has {}", name, rules.index, listed(gids, rules));
}

bool has_route(std::span<const Route> routes, const PortGid& own, const PortGid& peer) {
    if (own.interface.empty()) return true;
    return std::any_of(routes.begin(), routes.end(), [&](const Route& route) {
        return route.interface == own.interface && route.bits >= (peer.is_ipv4() ? 96 : 0) &&
               same_prefix(route.address, peer.bytes, route.bits);
    });
}

std::vector<GidPair> rank_gid_pairs(std::span<const PortGid> own, std::span<const PortGid> peer,
                                    const GidRules& rules) {
    std::vector<GidPair> pairs;
    for (size_t i = 0; i < own.size(); ++i) {
        if (excluded(own[i], rules) || (rules.index >= 0 && own[i].index != rules.index)) continue;
        for (size_t k = 0; k < peer.size(); ++k) {
            if (excluded(peer[k], rules) || !fit(own[i], peer[k])) continue;
            const int bits = std::max(subnet_bits(own[i], rules), subnet_bits(peer[k], rules));
            const bool same = same_prefix(own[i].bytes, peer[k].bytes, bits);
            pairs.push_back({i, k, same, pair_reason(own[i], peer[k], same)});
        }
    }
    const auto key = [&](const GidPair& pair) {
        const PortGid &one = own[pair.own], &other = peer[pair.peer];
        const bool roce = one.type != gid_infiniband;
        const int invisible = roce ? int(one.interface.empty()) + int(other.interface.empty()) : 0;
        const bool unreachable =
            roce && !rules.routes.empty() && !pair.same_subnet && !has_route(rules.routes, one, other);
        return std::tuple(invisible, unreachable, one.kind(), !pair.same_subnet, one.index, other.index);
    };
    std::sort(pairs.begin(), pairs.end(),
              [&](const GidPair& one, const GidPair& other) { return key(one) < key(other); });
    return pairs;
}

Result<GidPair> choose_gid_pair(std::span<const PortGid> own, std::span<const PortGid> peer, const GidRules& rules,
                                std::string_view own_name, std::string_view peer_name) {
    WEFT_TRY(check_gid_index(own, rules, own_name));
    std::vector<GidPair> pairs = rank_gid_pairs(own, peer, rules);
    if (pairs.empty())
        return fail(error::verbs_path, "no GIDs of {} and {} fit; {} has {}; {} has {}", own_name, peer_name, own_name,
                    listed(own, rules), peer_name, listed(peer, rules));
    return std::move(pairs.front());
}

}  // namespace weft::internal::verbs
