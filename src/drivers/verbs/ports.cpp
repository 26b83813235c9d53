#include "src/drivers/verbs/ports.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "src/base/file.hpp"
#include "src/drivers/verbs/gid_check.hpp"
#include "src/drivers/verbs/port_text.hpp"

namespace weft::internal::verbs {

namespace {

// Ports of this speed lose about a twentieth of it with packets of 1,024 bytes.
constexpr int small_packets_mbps = 100'000;
constexpr int mtu_1024 = 3;

// "Global tclass=106", as mlx5 has it.
int global_traffic_class(const std::string& folder, int number) {
    const std::string text = system_file(fmt::format("{}/tc/{}/traffic_class", folder, number));
    const size_t place = text.find("tclass=");
    int value = -1;
    if (place != std::string::npos) std::from_chars(text.data() + place + 7, text.data() + text.size(), value);
    return value >= 0 && value <= 255 ? value : -1;
}

void add_notes(const IbSettings& settings, IbPort& port) {
    if (port.link_layer == link_ethernet && port.mtu <= mtu_1024 && port.mbps >= small_packets_mbps)
        port.notes.push_back(fmt::format("its active MTU is {}: set the MTU of its network device to 4200 or more",
                                         mtu_bytes(port.mtu)));
    if (port.global_traffic_class >= 0 && port.global_traffic_class != settings.path.traffic_class)
        port.notes.push_back(fmt::format("the port's global traffic class {} replaces {}", port.global_traffic_class,
                                         settings.path.traffic_class));
    if (port.link_layer != link_ethernet) return;
    const auto invisible = [](const PortGid& gid) { return gid.interface.empty(); };
    if (!port.gids.empty() && std::all_of(port.gids.begin(), port.gids.end(), invisible))
        port.notes.push_back(
            "its network device is in another network namespace: the kernel tells which of its GIDs may work");
}

const char* network_text(int link_layer) {
    return link_layer == link_ethernet ? "RoCE" : link_layer == link_infiniband ? "InfiniBand" : "another network";
}

// Why an admitted port cannot be used.
std::string trouble_of(const IbPort& port) {
    if (!port.has_known_network())
        return "the port is neither InfiniBand nor RoCE, but of iWARP, EFA or the like: another transport may use it, "
               "as WEFT_TRANSPORTS=shm,ucx or a network plugin of NCCL";
    if (!is_active(port.state))
        return fmt::format("the port is {}{}", port_state_text(port.state),
                           port.state == 2 ? ": does a subnet manager run?" : "");
    if (port.link_layer == link_infiniband && port.lid == 0 && !port.needs_grh)
        return "the port has no LID: a subnet manager must run on its network";
    const bool usable = std::any_of(port.gids.begin(), port.gids.end(),
                                    [](const PortGid& gid) { return gid.refused == 0 && !gid.interface_down; });
    if (port.link_layer == link_ethernet && !usable)
        return port.gids.empty() ? "the port has no GID: give its network device an address"
                                 : "the network device of each of its GIDs is down or gone";
    return {};
}

}  // namespace

std::string IbPort::name() const { return number > 0 ? fmt::format("{}:{}", device, number) : device; }

std::string IbPort::summary() const {
    if (number == 0) return {};
    std::string text = network_text(link_layer);
    if (link_layer == link_infiniband) text += fmt::format(", LID {}", lid);
    text += mbps > 0 ? fmt::format(", {:.3g} Gb/s", mbps / 1000.0) : ", speed unknown";
    text += fmt::format(", MTU {}, {} GID{}", mtu_bytes(mtu), gids.size(), gids.size() == 1 ? "" : "s");
    if (needs_grh && link_layer == link_infiniband) text += ", GRH required";
    if (wish.rail >= 0) text += fmt::format(", rail {}", wish.rail);
    if (wish.plane >= 0) text += fmt::format(", plane {}", wish.plane);
    return text;
}

IbPort read_port(const Context& context, const ProtectionDomain* domain, int number) {
    IbPort port;
    port.device = context.facts().name;
    port.number = number;
    Result<abi::PortAttributes> attributes = context.port(number);
    if (!attributes) {
        port.why_not = attributes.status().sentence();
        return port;
    }
    port.state = attributes->state;
    // Ethernet of iWARP and eRDMA is no RoCE.
    if (context.facts().transport == transport_infiniband) port.link_layer = attributes->link_layer;
    port.mtu = attributes->mtu;
    port.mbps = context.mbps(*attributes, number);
    port.lid = attributes->lid;
    port.needs_grh = (attributes->flags & grh_required) != 0;
    port.pkeys = context.pkeys(number);
    port.global_traffic_class = global_traffic_class(context.facts().folder, number);
    if (Result<std::vector<PortGid>> gids = context.gids(number)) port.gids = std::move(*gids);
    if (domain != nullptr && is_active(port.state)) check_gids(*domain, number, port.gids);
    return port;
}

std::vector<IbPort> read_ports(const DeviceList& devices) {
    std::vector<IbPort> ports;
    for (const std::string& name : devices.names()) {
        Result<std::unique_ptr<Context>> context = devices.open(name);
        if (!context) {
            IbPort& silent = ports.emplace_back();
            silent.device = name;
            silent.why_not = context.status().sentence();
            continue;
        }
        Result<std::unique_ptr<ProtectionDomain>> domain = ProtectionDomain::make(**context);
        for (int number = 1; number <= (*context)->facts().ports; ++number)
            ports.push_back(read_port(**context, domain ? domain->get() : nullptr, number));
    }
    return ports;
}

Status admit_port(const IbSettings& settings, IbPort& port) {
    if (!port.usable()) return ok();
    if (settings.disabled) {
        port.why_not = "WEFT_IB_DISABLE is 1";
        return ok();
    }
    if (!settings.devices.admits(port.device, port.number)) {
        port.why_not = fmt::format("{} leaves it out", settings.devices.variable());
        return ok();
    }
    if (const DeviceWish* wish = settings.devices.wish(port.device, port.number)) port.wish = *wish;
    port.why_not = trouble_of(port);
    if (!port.usable()) return ok();
    add_notes(settings, port);
    const GidRules rules = settings.gid_rules(port.gids);
    if (rules.index != settings.gids.index)
        port.notes.push_back(fmt::format("it has no GID of index {}: one is chosen", settings.gids.index));
    Status fits = check_gid_index(port.gids, rules, port.name());
    Result<int> pkey = settings.partition_key.choose(port.pkeys, port.name());
    if (pkey)
        port.pkey_index = *pkey;
    else if (fits.ok())
        fits = pkey.take_status();
    if (!fits.ok()) port.why_not = fits.sentence();
    return fits;
}

int preferred_link_layer(const std::vector<IbPort>& ports) {
    int infiniband_mbps = 0, ethernet_mbps = 0;
    bool infiniband = false, ethernet = false;
    for (const IbPort& port : ports) {
        if (!port.usable()) continue;
        const bool of_ethernet = port.link_layer == link_ethernet;
        (of_ethernet ? ethernet : infiniband) = true;
        int& fastest = of_ethernet ? ethernet_mbps : infiniband_mbps;
        fastest = std::max(fastest, port.mbps);
    }
    if (!infiniband && !ethernet) return 0;
    return !infiniband || (ethernet && prefers_ethernet(infiniband_mbps, ethernet_mbps)) ? link_ethernet
                                                                                         : link_infiniband;
}

static void note_link_layer(std::vector<IbPort>& ports) {
    const int preferred = preferred_link_layer(ports);
    for (IbPort& port : ports)
        if (port.usable() && (port.link_layer == link_ethernet) != (preferred == link_ethernet))
            port.notes.push_back(
                fmt::format("this host has ports of two link layers, and prefers those of {} "
                            "(WEFT_IB_DEVICES chooses others)",
                            preferred == link_ethernet ? "RoCE" : "InfiniBand"));
}

Status admit_ports(const IbSettings& settings, std::vector<IbPort>& ports) {
    std::vector<std::string> names;
    for (const IbPort& port : ports)
        if (names.empty() || names.back() != port.device) names.push_back(port.device);
    Status first = settings.devices_by_alias || settings.disabled ? ok() : settings.devices.check(names);
    for (IbPort& port : ports) {
        Status admitted = admit_port(settings, port);
        if (first.ok()) first = std::move(admitted);
    }
    note_link_layer(ports);
    return first;
}

}  // namespace weft::internal::verbs
