// Routes of the kernel, and the pairs of GIDs that they connect.
#include "src/drivers/verbs/routes.hpp"

#include <arpa/inet.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

#include <cstring>

#include "tests/catch.hpp"

using namespace weft::internal;
using namespace weft::internal::verbs;

namespace {

std::array<uint8_t, 16> bytes_of(const std::string& address) {
    std::array<uint8_t, 16> bytes{};
    const bool six = address.find(':') != std::string::npos;
    REQUIRE(inet_pton(AF_INET6, six ? address.c_str() : ("::ffff:" + address).c_str(), bytes.data()) == 1);
    return bytes;
}

PortGid v2(int index, const std::string& address, const char* interface) {
    PortGid gid;
    gid.bytes = bytes_of(address);
    gid.index = index;
    gid.type = gid_roce_v2;
    gid.interface = interface;
    return gid;
}

Route route(const char* interface, const std::string& address, int bits) {
    return {interface, bytes_of(address), bits + (address.find(':') == std::string::npos ? 96 : 0)};
}

// A message of the kernel, as in linux/rtnetlink.h.
class Answer {
  public:
    Answer& begin(int family, int type, int bits) {
        header_ = bytes_.size();
        bytes_.resize(header_ + NLMSG_LENGTH(sizeof(rtmsg)));
        rtmsg message{};
        message.rtm_family = uint8_t(family);
        message.rtm_type = uint8_t(type);
        message.rtm_dst_len = uint8_t(bits);
        memcpy(bytes_.data() + header_ + NLMSG_HDRLEN, &message, sizeof message);
        return close(RTM_NEWROUTE);
    }
    Answer& attribute(int type, const void* data, size_t size) {
        const rtattr head{uint16_t(RTA_LENGTH(size)), uint16_t(type)};
        const size_t place = bytes_.size();
        bytes_.resize(place + RTA_SPACE(size));
        memcpy(bytes_.data() + place, &head, sizeof head);
        memcpy(bytes_.data() + place + RTA_LENGTH(0), data, size);
        return close(RTM_NEWROUTE);
    }
    Answer& done() {
        header_ = bytes_.size();
        bytes_.resize(header_ + NLMSG_LENGTH(sizeof(int)));
        return close(NLMSG_DONE);
    }
    const std::vector<std::byte>& bytes() const { return bytes_; }

  private:
    Answer& close(int type) {
        nlmsghdr head{};
        head.nlmsg_len = uint32_t(bytes_.size() - header_);
        head.nlmsg_type = uint16_t(type);
        memcpy(bytes_.data() + header_, &head, sizeof head);
        return *this;
    }
    std::vector<std::byte> bytes_;
    size_t header_ = 0;
};

}  // namespace

TEST_CASE("the kernel's routes are read, also those of several next hops", "[verbs]") {
    const int loopback = int(if_nametoindex("lo"));
    REQUIRE(loopback > 0);
    const uint8_t net[4] = {10, 9, 0, 0};
    Answer answer;
    answer.begin(AF_INET, RTN_UNICAST, 16).attribute(RTA_DST, net, 4).attribute(RTA_OIF, &loopback, sizeof loopback);
    answer.begin(AF_INET, RTN_LOCAL, 32).attribute(RTA_DST, net, 4).attribute(RTA_OIF, &loopback, sizeof loopback);
    rtnexthop hops[2] = {{sizeof(rtnexthop), 0, 0, loopback}, {sizeof(rtnexthop), 0, 0, loopback}};
    answer.begin(AF_INET6, RTN_UNICAST, 0).attribute(RTA_MULTIPATH, hops, sizeof hops);
    std::vector<Route> routes;
    CHECK(!add_routes(answer.bytes(), routes));
    CHECK(add_routes(answer.done().bytes(), routes));
    REQUIRE(routes.size() == 6);
    CHECK(routes[0].interface == "lo");
    CHECK(routes[0].bits == 112);
    CHECK(routes[0].address == bytes_of("10.9.0.0"));
    CHECK(routes[1].bits == 0);
    // A message that is cut off ends the reading.
    std::vector<Route> cut;
    CHECK(!add_routes(std::span(answer.bytes()).first(20), cut));
    CHECK(cut.empty());
    // This machine's own, if it tells them.
    if (const auto own = read_routes())
        for (const Route& each : *own) CHECK(!each.interface.empty());
}

TEST_CASE("a route begins at the network device of the own GID", "[verbs]") {
    const std::vector<Route> routes{route("eth0", "10.1.0.0", 16), route("eth1", "0.0.0.0", 0),
                                    route("eth2", "fd00::", 8)};
    CHECK(has_route(routes, v2(0, "10.1.0.1", "eth0"), v2(0, "10.1.7.7", "x")));
    CHECK(!has_route(routes, v2(0, "10.1.0.1", "eth0"), v2(0, "10.2.7.7", "x")));
    CHECK(has_route(routes, v2(0, "10.5.0.1", "eth1"), v2(0, "10.2.7.7", "x")));
    CHECK(!has_route(routes, v2(0, "fd00::1", "eth1"), v2(0, "fd00::2", "x")));  // a default route of IPv4
    CHECK(has_route(routes, v2(0, "fd00::1", "eth2"), v2(0, "fd12::2", "x")));
    CHECK(has_route(routes, v2(0, "10.1.0.1", ""), v2(0, "10.2.7.7", "x")));
}

TEST_CASE("a pair of GIDs with a route comes before better ones without", "[verbs]") {
    const std::vector<PortGid> own{v2(3, "10.1.0.1", "eth0"), v2(5, "10.2.0.1", "eth1"), v2(7, "fd00::1", "eth1")};
    const std::vector<PortGid> peer{v2(3, "10.9.0.1", ""), v2(7, "fd00:0:0:9::1", "")};
    GidRules rules;
    CHECK(own[rank_gid_pairs(own, peer, rules)[0].own].index == 3);
    rules.routes = {route("eth0", "10.1.0.0", 16), route("eth1", "10.0.0.0", 8)};
    std::vector<GidPair> ranked = rank_gid_pairs(own, peer, rules);
    REQUIRE(ranked.size() == 3);
    CHECK(own[ranked[0].own].index == 5);
    CHECK(own[ranked[1].own].index == 3);  // it stays: the tables may be wrong
    rules.routes = {route("eth1", "fd00::", 16)};
    ranked = rank_gid_pairs(own, peer, rules);
    CHECK(own[ranked[0].own].index == 7);
    // In one subnet no route is needed.
    const std::vector<PortGid> near{v2(3, "10.1.0.9", "")};
    CHECK(own[rank_gid_pairs(own, near, rules)[0].own].index == 3);
}
