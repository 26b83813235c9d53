// interfaces.cpp: this host's own addresses (address.hpp): which network interfaces are used, in which order.
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>

#include "src/base/fd.hpp"
#include "src/base/file.hpp"
#include "src/base/options.hpp"
#include "src/net/address.hpp"

namespace weft::internal::net {

namespace {

// WEFT_SOCKET_IFNAME, with NCCL_SOCKET_IFNAME's syntax: `eth,ib` takes names with these prefixes, `^docker` all names
// without this prefix, `=eth0` exactly this name, `^=eth0` all names but this one.
class NameFilter {
  public:
    explicit NameFilter(const std::string& text) {
        size_t at = 0;
        excludes_ = at < text.size() && text[at] == '^';
        at += excludes_;
        exact_ = at < text.size() && text[at] == '=';
        at += exact_;
        while (at < text.size()) {
            const size_t end = std::min(text.find(',', at), text.size());
            if (end > at) names_.push_back(text.substr(at, end - at));
            at = end + 1;
        }
    }
    bool chooses() const { return !names_.empty(); }  // the user set the option
    bool excludes() const { return excludes_; }
    bool takes(const std::string& interface) const {
        if (names_.empty()) return true;
        const bool named = std::any_of(names_.begin(), names_.end(), [&](const std::string& name) {
            return exact_ ? interface == name : interface.rfind(name, 0) == 0;
        });
        return named != excludes_;
    }

  private:
    bool excludes_ = false;
    bool exact_ = false;
    std::vector<std::string> names_;
};

// Bridges of containers and virtual machines have the same addresses on every host, so they lead to no other host.
bool is_private_bridge(const std::string& interface) {
    for (const char* prefix : {"docker", "virbr", "br-", "podman", "cni", "lxcbr", "lxdbr"})
        if (interface.rfind(prefix, 0) == 0) return true;
    return false;
}

int class_of(const InterfaceAddress& one) {
    if (one.address.is_loopback()) return 2;
    return is_private_bridge(one.interface) ? 1 : 0;
}

std::string list_of(const std::vector<InterfaceAddress>& all) {
    std::string text, last;
    for (const InterfaceAddress& one : all) {
        text += one.interface == last
                    ? " " + one.address.text()
                    : fmt::format("{}{} {}", text.empty() ? "" : ", ", one.interface, one.address.text());
        last = one.interface;
    }
    return text.empty() ? "none" : text;
}

}  // namespace

Result<std::vector<Address>> choose_addresses(const std::vector<InterfaceAddress>& all, const std::string& names,
                                              const std::string& family) {
    const NameFilter filter(names);
    if (!family.empty() && family != "AF_INET" && family != "AF_INET6")
        return fail(error::option_value, "{} is {}; AF_INET or AF_INET6 is expected",
                    options().variable(OptionIndex::socket_family), family);
    std::vector<InterfaceAddress> taken;
    for (const InterfaceAddress& one : all) {
        const bool wanted_family = family.empty() || one.address.family() == (family == "AF_INET" ? AF_INET : AF_INET6);
        if (wanted_family && filter.takes(one.interface)) taken.push_back(one);
    }
    if (taken.empty())
        return fail(error::tcp_interface,
                    "no address of this host fits: {} is {}, {} {}; the network interfaces that are up: {}",
                    options().variable(OptionIndex::socket_ifname), names.empty() ? "unset" : names,
                    options().variable(OptionIndex::socket_family), family.empty() ? "unset" : family, list_of(all));
    // A name that the user gave is taken as it is, even lo; otherwise the best class is used.
    if (!filter.chooses() || filter.excludes()) {
        int best = 2;
        for (const InterfaceAddress& one : taken) best = std::min(best, class_of(one));
        std::erase_if(taken, [&](const InterfaceAddress& one) { return class_of(one) != best; });
    }
    // A link-local address also needs the name of an interface at the other end, so it is used only if there is no
    // other address.
    const std::vector<InterfaceAddress> before = taken;
    std::erase_if(taken, [&](const InterfaceAddress& one) {
        return one.address.is_link_local() &&
               std::any_of(before.begin(), before.end(), [&](const InterfaceAddress& other) {
                   return other.interface == one.interface && !other.address.is_link_local();
               });
    });
    std::vector<std::string> interfaces;  // numbered in the kernel's order
    for (const InterfaceAddress& one : taken)
        if (std::find(interfaces.begin(), interfaces.end(), one.interface) == interfaces.end())
            interfaces.push_back(one.interface);
    // On each interface IPv4 before IPv6; then the first of every interface, the second of every interface, ..., and
    // last the link-local ones.
    std::vector<std::pair<int, Address>> ordered;
    for (size_t number = 0; number < interfaces.size(); ++number) {
        int place = 0;
        for (const int wanted : {AF_INET, AF_INET6})
            for (const InterfaceAddress& one : taken)
                if (one.interface == interfaces[number] && one.address.family() == wanted)
                    ordered.push_back({one.address.is_link_local() || one.address.is_unconfigured() ? 1000 : place++,
                                       one.address.of_interface(int(std::min<size_t>(number, 15)))});
    }
    std::stable_sort(ordered.begin(), ordered.end(),
                     [](const auto& one, const auto& other) { return one.first < other.first; });
    std::vector<Address> addresses;
    for (const auto& [place, address] : ordered) addresses.push_back(address);
    return addresses;
}

static Result<std::vector<InterfaceAddress>> all_that_are_up() {
    ifaddrs* list = nullptr;
    const StandardNumbers held;  // it opens a netlink socket
    if (getifaddrs(&list) != 0)
        return fail(error::system_call, "the network interfaces could not be listed: {}", errno_text(errno));
    std::vector<InterfaceAddress> all;
    for (const ifaddrs* item = list; item; item = item->ifa_next) {
        if ((item->ifa_flags & IFF_UP) == 0 || (item->ifa_flags & IFF_RUNNING) == 0) continue;
        if (auto address = Address::of(item->ifa_addr)) all.push_back({item->ifa_name, *address});
    }
    freeifaddrs(list);
    return all;
}

std::vector<InterfaceAddress> addresses_of_this_host() {
    auto all = all_that_are_up();
    return all ? std::move(*all) : std::vector<InterfaceAddress>();
}

std::vector<Address> call_order(std::vector<Address> peer, const std::vector<InterfaceAddress>& own) {
    const auto lateness = [&](const Address& address) {
        const Address plain = address.with_port(0).with_scope(0);
        const bool ours = std::any_of(own.begin(), own.end(),
                                      [&](const InterfaceAddress& one) { return one.address.with_scope(0) == plain; });
        return ours ? 2 : address.is_link_local() || address.is_unconfigured() ? 1 : 0;
    };
    std::vector<std::pair<int, Address>> ordered;
    for (const Address& address : peer) ordered.emplace_back(lateness(address), address);
    std::stable_sort(ordered.begin(), ordered.end(),
                     [](const auto& one, const auto& other) { return one.first < other.first; });
    peer.clear();
    for (const auto& [late, address] : ordered) peer.push_back(address);
    return peer;
}

Result<std::vector<Address>> local_addresses() {
    auto all = all_that_are_up();
    if (!all) return all.take_status();
    return choose_addresses(*all, options().socket_ifname, options().socket_family);
}

std::string interface_name(const Address& address) {
    const auto all = all_that_are_up();
    if (all)
        for (const InterfaceAddress& one : *all)
            if (one.address == address) return one.interface;
    return {};
}

int64_t link_mbps(const std::vector<std::string>& interfaces, const std::string& folder) {
    int64_t sum = 0;
    for (const std::string& interface : interfaces) {
        const std::string path = folder + "/" + interface;
        // A veth claims 10 Gbit/s without a reason. Interfaces with a device, or of several devices, know their speed.
        if (access((path + "/device").c_str(), F_OK) != 0 && access((path + "/bonding").c_str(), F_OK) != 0) return 0;
        int64_t speed = 0;
        if (!(std::istringstream(system_file(path + "/speed")) >> speed) || speed <= 0) return 0;
        sum += speed;
    }
    return sum;
}

int64_t link_mbps() {
    const auto all = all_that_are_up();
    if (!all) return 0;
    const auto chosen = choose_addresses(*all, options().socket_ifname, options().socket_family);
    if (!chosen) return 0;
    // All interfaces that the user named are used together; otherwise one is used.
    const NameFilter filter(options().socket_ifname);
    const bool together = filter.chooses() && !filter.excludes();
    std::vector<std::string> interfaces;
    for (const Address& address : *chosen)
        for (const InterfaceAddress& one : *all)
            if (one.address == address && (together || interfaces.empty()) &&
                std::find(interfaces.begin(), interfaces.end(), one.interface) == interfaces.end())
                interfaces.push_back(one.interface);
    return link_mbps(interfaces);
}

}  // namespace weft::internal::net
