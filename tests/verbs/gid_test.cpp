// The choice of GIDs by pair: classes, families, subnets, namespaces, sparse tables, and the options.
#include "src/drivers/verbs/gid.hpp"

#include <arpa/inet.h>

#include <cstring>

#include "tests/catch.hpp"

using namespace weft::internal;
using namespace weft::internal::verbs;

namespace {

PortGid gid(int index, const char* address, int type, const char* interface = "eth0", int prefix_bits = 0) {
    PortGid made;
    made.index = index;
    made.type = type;
    made.interface = interface;
    made.prefix_bits = prefix_bits;
    in6_addr bytes{};
    const std::string text = strchr(address, ':') ? address : std::string("::ffff:") + address;
    REQUIRE(inet_pton(AF_INET6, text.c_str(), &bytes) == 1);
    memcpy(made.bytes.data(), &bytes, 16);
    return made;
}

// A port of RoCE as mlx5 has it.
std::vector<PortGid> roce(const char* link_local, const char* ipv4) {
    return {gid(0, link_local, gid_roce_v1), gid(1, link_local, gid_roce_v2), gid(2, ipv4, gid_roce_v1),
            gid(3, ipv4, gid_roce_v2)};
}

std::string chosen(const std::vector<PortGid>& own, const std::vector<PortGid>& peer, const GidRules& rules = {}) {
    const Result<GidPair> pair = choose_gid_pair(own, peer, rules, "own", "peer");
    if (!pair) return pair.status().failure().text();
    return fmt::format("{} {}", own[pair->own].index, peer[pair->peer].index);
}

}  // namespace

TEST_CASE("RoCE takes version 2 with IPv4 first, then global IPv6, then link-local, then version 1", "[verbs]") {
    std::vector<PortGid> own = roce("fe80::1", "10.0.0.1"), peer = roce("fe80::2", "10.0.0.2");
    CHECK(chosen(own, peer) == "3 3");
    own.push_back(gid(5, "fd00::1", gid_roce_v2));
    peer.push_back(gid(7, "fd00::2", gid_roce_v2));
    CHECK(chosen(own, peer) == "3 3");
    const std::vector<GidPair> ranked = rank_gid_pairs(own, peer, {});
    std::vector<GidClass> classes;
    for (const GidPair& pair : ranked) classes.push_back(own[pair.own].kind());
    CHECK(classes == std::vector{GidClass::v2_ipv4, GidClass::v2_global, GidClass::v2_link_local, GidClass::v1_ipv4,
                                 GidClass::v1_link_local});
    CHECK(ranked[0].reason == "RoCE v2, IPv4, same subnet");
}

TEST_CASE("a pair has one family: IPv6 where one end has no IPv4", "[verbs]") {
    const std::vector<PortGid> own = roce("fe80::1", "10.0.0.1");
    const std::vector<PortGid> six{gid(0, "fe80::2", gid_roce_v1), gid(9, "fe80::2", gid_roce_v2)};
    CHECK(chosen(own, six) == "1 9");
    const std::string none = chosen({gid(3, "10.0.0.1", gid_roce_v2)}, {gid(4, "fd00::2", gid_roce_v2)});
    CHECK(none.find("index 3 10.0.0.1 (RoCE v2, IPv4)") != std::string::npos);
    CHECK(none.find("index 4 fd00::2 (RoCE v2, IPv6)") != std::string::npos);
    CHECK(none.find("[verbs.path]") != std::string::npos);
}

TEST_CASE("the pair of one subnet is preferred, by the prefix of the interface where it is known", "[verbs]") {
    const std::vector<PortGid> own{gid(3, "10.1.0.1", gid_roce_v2), gid(5, "10.2.0.1", gid_roce_v2)};
    CHECK(chosen(own, {gid(3, "10.2.0.9", gid_roce_v2)}) == "5 3");
    CHECK(chosen(own, {gid(3, "10.9.0.9", gid_roce_v2)}) == "3 3");  // a router may connect them
    const std::vector<PortGid> wide{gid(3, "10.1.0.1", gid_roce_v2, "eth0", 8), gid(5, "10.2.0.1", gid_roce_v2)};
    const std::vector<GidPair> ranked =
        rank_gid_pairs(wide, std::vector{gid(1, "10.7.0.9", gid_roce_v2, "eth0", 8)}, {});
    CHECK(ranked[0].same_subnet);
    CHECK(!ranked[1].same_subnet);
    CHECK(wide[ranked[0].own].index == 3);
}

TEST_CASE("a GID of another network namespace is last and stays", "[verbs]") {
    const std::vector<PortGid> own{gid(3, "10.0.0.1", gid_roce_v2, ""), gid(1, "fe80::1", gid_roce_v2)};
    const std::vector<PortGid> peer{gid(3, "10.0.0.2", gid_roce_v2), gid(1, "fe80::2", gid_roce_v2)};
    CHECK(chosen(own, peer) == "1 1");
    CHECK(chosen({own[0]}, peer) == "3 3");
    CHECK(rank_gid_pairs(std::vector{own[0]}, peer, {})[0].reason.find("own network device invisible") !=
          std::string::npos);
}

TEST_CASE("GIDs that are empty, or whose device is down, are not used", "[verbs]") {
    std::vector<PortGid> own{gid(0, "::", gid_roce_v2), gid(3, "10.0.0.1", gid_roce_v2),
                             gid(7, "10.0.0.3", gid_roce_v2)};
    own[1].interface_down = true;
    CHECK(chosen(own, {gid(200, "10.0.0.2", gid_roce_v2)}) == "7 200");  // a sparse table
    own.pop_back();
    const std::string none = chosen(own, {gid(200, "10.0.0.2", gid_roce_v2)});
    CHECK(none.find("its network device is down") != std::string::npos);
}

TEST_CASE("options choose the family, the version, the range and the index", "[verbs]") {
    std::vector<PortGid> own = roce("fe80::1", "10.1.0.1"), peer = roce("fe80::2", "10.1.0.2");
    own.push_back(gid(9, "192.168.7.1", gid_roce_v2));
    peer.push_back(gid(8, "192.168.7.2", gid_roce_v2));
    CHECK(chosen(own, peer, {.family = AddressFamily::ipv6}) == "1 1");
    CHECK(chosen(own, peer, {.roce_version = 1}) == "2 2");
    GidRules rules;
    rules.range = *read_address_range("WEFT_IB_ADDR_RANGE", "192.168.0.0/16");
    CHECK(chosen(own, peer, rules) == "9 8");
    CHECK(chosen(own, peer, {.index = 0}) == "0 0");
    const std::string missing = chosen(own, peer, {.index = 4});
    CHECK(missing.find("own has no GID of index 4; it has index 0 fe80::1") == 0);
    CHECK(missing.find("[option.value]") != std::string::npos);
}

TEST_CASE("an address range is an address with a prefix", "[verbs]") {
    const auto holds = [](const char* range, const char* address) {
        return read_address_range("R", range)->holds(gid(0, address, gid_roce_v2));
    };
    CHECK(holds("10.0.0.0/9", "10.127.1.1"));
    CHECK(!holds("10.0.0.0/9", "10.128.1.1"));
    CHECK(holds("10.0.0.1", "10.0.0.1"));
    CHECK(!holds("0.0.0.0/0", "fd00::1"));
    CHECK(holds("fd00::/8", "fd12::1"));
    for (const char* wrong : {"", "10.0.0/8", "10.0.0.0/33", "10.0.0.0/", "fd00::/129", "eth0", "10.0.0.0/8x"})
        CHECK(read_address_range("R", wrong).status().id() == error::option_value);
}

TEST_CASE("InfiniBand has one class, and prefers the same subnet prefix", "[verbs]") {
    const std::vector<PortGid> own{gid(0, "fe80::1", gid_infiniband, ""), gid(1, "fec0:1::1", gid_infiniband, "")};
    CHECK(chosen(own, {gid(0, "fe80::2", gid_infiniband, "")}) == "0 0");
    CHECK(chosen(own, {gid(0, "fec0:1::2", gid_infiniband, "")}) == "1 0");
    CHECK(chosen(own, {gid(0, "fec0:2::2", gid_infiniband, "")}) == "0 0");
    CHECK(chosen(own, {gid(3, "10.0.0.2", gid_roce_v2)}).find("[verbs.path]") != std::string::npos);
}
