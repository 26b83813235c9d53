// gid.hpp: GIDs, the addresses of RDMA ports, and which pair of them two ports should use. Pure functions of both
// tables: a global index is wrong, because the tables of hosts, and even of ports, differ and have holes.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"
#include "src/drivers/verbs/numbers.hpp"

namespace weft::internal::verbs {

// Whether the first `bits` of 128 are equal.
bool same_prefix(const std::array<uint8_t, 16>& one, const std::array<uint8_t, 16>& other, int bits);

// The better ones first.
enum class GidClass { infiniband, v2_ipv4, v2_global, v2_link_local, v1_ipv4, v1_global, v1_link_local };

struct PortGid {
    std::array<uint8_t, 16> bytes{};
    int index = 0;
    int type = gid_infiniband;
    std::string interface;  // the network device behind it; empty: none, or it belongs to another network namespace
    bool interface_down = false;
    int refused = 0;      // errno: the kernel makes no address with it, as check_gids() found
    int prefix_bits = 0;  // of the interface's address; 0: unknown

    bool is_ipv4() const;  // ::ffff:a.b.c.d
    bool is_link_local() const;
    GidClass kind() const;
    // "fe80::1" or "10.0.0.1", as users know it.
    std::string address() const;
};

struct AddressRange {
    std::array<uint8_t, 16> bytes{};
    int bits = 0;
    bool ipv4 = false;
    bool holds(const PortGid& gid) const;
};
// "10.1.0.0/16" or "fd00::/8". `variable` is the option's name, for option.value.
Result<AddressRange> read_address_range(const char* variable, std::string_view text);

enum class AddressFamily { any, ipv4, ipv6 };

// A way to a range of addresses, which begins at a network device.
struct Route {
    std::string interface;
    std::array<uint8_t, 16> address{};  // as a GID
    int bits = 0;                       // of 128
};

// Whether a route leads from the network device of one GID to the address of the other. True if the device is unknown.
bool has_route(std::span<const Route> routes, const PortGid& own, const PortGid& peer);

struct GidRules {
    int index = -1;  // the own table's, -1: choose
    AddressFamily family = AddressFamily::any;
    int roce_version = 0;  // 1, 2; 0: both, the newer one first
    std::optional<AddressRange> range{};
    int subnet_bits_ipv4 = 24;  // of addresses whose prefix is unknown
    // Of this host, from read_routes(); empty: unknown. They differ between the ends, so one end alone chooses the pair.
    std::vector<Route> routes{};
};

// Whether the table has a GID of the index; -1 is always there.
bool has_gid_index(std::span<const PortGid> gids, int index);
// option.value with the indices that the table has. `name` is the port's.
Status check_gid_index(std::span<const PortGid> gids, const GidRules& rules, std::string_view name);

// Places in the two lists.
struct GidPair {
    size_t own = 0, peer = 0;
    bool same_subnet = false;
    std::string reason;
};

// All pairs that may work, the best first. The next one is for a probe that failed. Only GIDs of one type and family
// fit. A pair without a route comes behind those with one. A GID with an invisible network device is last and stays: in a container the device belongs to the host.
std::vector<GidPair> rank_gid_pairs(std::span<const PortGid> own, std::span<const PortGid> peer, const GidRules& rules);
// The best pair, or verbs.path with what each side has. The names are of the two ports.
Result<GidPair> choose_gid_pair(std::span<const PortGid> own, std::span<const PortGid> peer, const GidRules& rules,
                                std::string_view own_name, std::string_view peer_name);

}  // namespace weft::internal::verbs
