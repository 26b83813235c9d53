#include "src/drivers/verbs/routes.hpp"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "src/base/fd.hpp"

namespace weft::internal::verbs {

namespace {

constexpr int answer_ms = 1'000;
constexpr size_t routes_most = 65'536;  // a router's table is longer, and no help here

std::string interface_name(int index) {
    char name[IF_NAMESIZE] = {};
    return if_indextoname(unsigned(index), name) ? name : "";
}

// The network devices of a route: one, or those of several next hops.
std::vector<int> devices_of(const rtmsg* message, size_t bytes, std::array<uint8_t, 16>& address) {
    std::vector<int> devices;
    int left = int(bytes);
    for (const rtattr* one = RTM_RTA(message); RTA_OK(one, left); one = RTA_NEXT(one, left)) {
        if (one->rta_type == RTA_DST) {
            const size_t offset = message->rtm_family == AF_INET ? 12 : 0;
            memcpy(address.data() + offset, RTA_DATA(one), std::min<size_t>(RTA_PAYLOAD(one), 16 - offset));
        } else if (one->rta_type == RTA_OIF && RTA_PAYLOAD(one) >= sizeof(int)) {
            int device = 0;
            memcpy(&device, RTA_DATA(one), sizeof device);
            devices.push_back(device);
        } else if (one->rta_type == RTA_MULTIPATH) {
            int rest = int(RTA_PAYLOAD(one));
            for (const auto* hop = static_cast<const rtnexthop*>(RTA_DATA(one)); RTNH_OK(hop, rest);
                 rest -= int(RTNH_ALIGN(hop->rtnh_len)), hop = RTNH_NEXT(hop))
                devices.push_back(hop->rtnh_ifindex);
        }
    }
    return devices;
}

void add_route(const nlmsghdr* header, std::vector<Route>& routes) {
    if (header->nlmsg_type != RTM_NEWROUTE || header->nlmsg_len < NLMSG_LENGTH(sizeof(rtmsg))) return;
    const auto* message = static_cast<const rtmsg*>(NLMSG_DATA(header));
    if (message->rtm_type != RTN_UNICAST || (message->rtm_flags & RTM_F_CLONED) != 0) return;
    Route route;
    const bool ipv4 = message->rtm_family == AF_INET;
    if (ipv4) route.address[10] = route.address[11] = 0xff;
    route.bits = message->rtm_dst_len + (ipv4 ? 96 : 0);
    for (const int device : devices_of(message, RTM_PAYLOAD(header), route.address)) {
        route.interface = interface_name(device);
        if (!route.interface.empty() && routes.size() < routes_most) routes.push_back(route);
    }
}

Status read_routes_of(int family, std::vector<Route>& routes) {
    const Fd socket = Fd::socket(AF_NETLINK, SOCK_RAW);
    struct {
        nlmsghdr header;
        rtmsg message;
    } request{};
    request.header.nlmsg_len = sizeof request;
    request.header.nlmsg_type = RTM_GETROUTE;
    request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    request.message.rtm_family = uint8_t(family);
    if (socket.number() < 0 || send(socket.number(), &request, sizeof request, MSG_NOSIGNAL) != ssize_t(sizeof request))
        return fail(error::verbs_call, "the kernel takes no question for its routes: {}", errno_text(errno));
    alignas(nlmsghdr) std::array<std::byte, 32'768> answer;
    for (;;) {
        pollfd ready{.fd = socket.number(), .events = POLLIN, .revents = 0};
        if (poll(&ready, 1, answer_ms) <= 0)
            return fail(error::verbs_call, "the kernel does not tell its routes within {} ms", answer_ms);
        const ssize_t bytes = recv(socket.number(), answer.data(), answer.size(), 0);
        if (bytes < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (bytes <= 0) return fail(error::verbs_call, "the kernel does not tell its routes: {}", errno_text(errno));
        if (add_routes({answer.data(), size_t(bytes)}, routes)) return ok();
    }
}

}  // namespace

bool add_routes(std::span<const std::byte> answer, std::vector<Route>& routes) {
    size_t left = answer.size();
    for (const auto* header = reinterpret_cast<const nlmsghdr*>(answer.data()); NLMSG_OK(header, left);
         header = NLMSG_NEXT(header, left)) {
        if (header->nlmsg_type == NLMSG_DONE || header->nlmsg_type == NLMSG_ERROR) return true;
        add_route(header, routes);
    }
    return false;
}

Result<std::vector<Route>> read_routes() {
    std::vector<Route> routes;
    WEFT_TRY(read_routes_of(AF_INET, routes));
    if (Status read = read_routes_of(AF_INET6, routes); !read) return read;
    return routes;
}

}  // namespace weft::internal::verbs
