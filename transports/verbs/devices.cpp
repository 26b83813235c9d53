#include "transports/verbs/devices.hpp"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <set>

#include "src/base/log.hpp"
#include "src/base/per_process.hpp"
#include "topology/nearest_ports.hpp"

namespace weft::internal::verbs {

namespace {

const char* layer_text(int layer) { return layer == link_ethernet ? "Ethernet" : "InfiniBand"; }

// Without a device libibverbs would write to standard error.
bool kernel_has_devices() {
    std::error_code ignored;
    for (const char* folder : {"/sys/class/infiniband", "/sys/class/infiniband_verbs"})
        if (std::filesystem::exists(folder, ignored) && !std::filesystem::is_empty(folder, ignored)) return true;
    return false;
}

// The sorted prefixes of an InfiniBand port's GIDs begin with that of its subnet.
uint64_t subnet_of(const Devices& devices, const Port& port) {
    const auto gids = devices.all()[port.device].context->gids(port.number);
    uint64_t first = UINT64_MAX;
    for (size_t i = 0; gids && i < gids->size(); ++i) {
        uint64_t prefix = 0;
        for (size_t byte = 0; byte < 8; ++byte) prefix = prefix << 8 | (*gids)[i].bytes[byte];
        first = std::min(first, prefix);
    }
    return first;
}

}  // namespace

std::string Port::text() const { return fmt::format("{}:{}", name, number); }

Result<const Devices*> Devices::of_process() {
    struct Opened {
        std::mutex mutex;
        std::unique_ptr<Devices> devices;
        Status failure;
    };
    static PerProcess<Opened> processes;
    Opened& opened = processes.get();
    std::lock_guard lock(opened.mutex);
    if (!opened.devices && opened.failure) {
        auto made = open(settings());
        if (made)
            opened.devices = std::move(*made);
        else
            opened.failure = made.take_status();
    }
    if (!opened.devices) return opened.failure.copy();
    return opened.devices.get();
}

Result<std::unique_ptr<Devices>> Devices::open(const Settings& settings) {
    WEFT_TRY(settings_status());
    if (settings.disabled) return fail(error::verbs_device, "WEFT_IB_DISABLE is 1");
    if (settings.library.empty() && !kernel_has_devices())
        return fail(error::verbs_device, "the kernel of this host has no RDMA device");
    auto functions = load_transport_functions(settings.library);
    if (!functions) return functions.take_status();
    auto list = DeviceList::read(*functions);
    if (!list) return list.take_status();
    const std::vector<std::string> names = list->names();
    if (names.empty()) return fail(error::verbs_device, "libibverbs finds no RDMA device");
    // NCCL's list may name devices of other hosts.
    if (!settings.devices_by_alias) WEFT_TRY(settings.devices.check(names));
    auto devices = std::make_unique<Devices>();
    Status last;
    for (const std::string& name : names) {
        auto context = list->open(name);
        if (!context) {
            last = context.take_status();
            continue;
        }
        auto domain = ProtectionDomain::make(**context);
        if (!domain) {
            last = domain.take_status();
            continue;
        }
        // Without it lanes work, so a limit of pinned memory is reported by what needs more.
        auto probe = ProbePage::make(**domain);
        if (!probe) WEFT_LOG(info, net, "probes of lanes on {} have no bytes: {}", name, probe.status().sentence());
        devices->all_.push_back({std::move(*context), std::move(*domain), probe ? std::move(*probe) : nullptr});
    }
    if (!last) WEFT_LOG(info, net, "{}", last.text());
    if (devices->all_.empty()) return last;
    return devices;
}

// `wrong`: receives the first failure of admit_port().
std::vector<IbPort> Devices::known_ports(const Settings& settings, Status& wrong) const {
    std::vector<IbPort> known;
    for (const Device& device : all_)
        for (int number = 1; number <= device.context->facts().ports; ++number) {
            known.push_back(read_port(*device.context, nullptr, number));
            Status admitted = admit_port(settings, known.back());
            if (wrong) wrong = std::move(admitted);
        }
    return known;
}

Result<std::vector<Port>> Devices::ports(const Settings& settings) const {
    Status wrong;
    const std::vector<IbPort> known = known_ports(settings, wrong);
    WEFT_TRY(std::move(wrong));
    std::vector<Port> found;
    std::string reasons;
    auto next = known.begin();
    for (size_t device = 0; device < all_.size(); ++device)
        for (int number = 1; number <= all_[device].context->facts().ports; ++number, ++next) {
            const auto attributes = all_[device].context->port(number);
            if (next->usable() && attributes)
                found.push_back({.device = device, .number = number, .attributes = *attributes, .name = next->device});
            else
                reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", next->name(),
                                       next->usable() ? attributes.status().sentence() : next->why_not);
        }
    if (found.empty()) return fail(error::verbs_device, "no RDMA port of this host can be used ({})", reasons);
    return found;
}

bool Devices::serves_links(size_t device, const Settings& settings) const {
    const DeviceFacts& facts = all_[device].context->facts();
    for (int number = 1; number <= facts.ports; ++number)
        if (facts.transport == transport_infiniband && settings.devices.admits(facts.name, number)) return true;
    return false;
}

std::vector<Rail> Devices::rails(const Settings& settings) const {
    std::vector<Rail> rails;
    Status ignored;  // its reason is in why_not
    for (IbPort& known : known_ports(settings, ignored)) {
        Rail rail;
        rail.name = known.name();
        if (known.has_known_network()) rail.detail = layer_text(known.link_layer);
        rail.why_not = std::move(known.why_not);
        rails.push_back(std::move(rail));
    }
    return rails;
}

std::vector<std::vector<Port>> by_layer(const Devices& devices, const std::vector<Port>& ports) {
    std::vector<Port> infiniband, ethernet;
    int infiniband_mbps = 0, ethernet_mbps = 0;
    for (const Port& port : ports) {
        const bool of_ethernet = port.attributes.link_layer == link_ethernet;
        int& fastest = of_ethernet ? ethernet_mbps : infiniband_mbps;
        fastest = std::max(fastest, devices.all()[port.device].context->mbps(port.attributes, port.number));
        (of_ethernet ? ethernet : infiniband).push_back(port);
    }
    std::vector<std::vector<Port>> layers;
    for (auto* layer : {&infiniband, &ethernet})
        if (!layer->empty()) layers.push_back(std::move(*layer));
    if (layers.size() == 2 && prefers_ethernet(infiniband_mbps, ethernet_mbps)) std::swap(layers[0], layers[1]);
    return layers;
}

std::vector<uint32_t> networks_of(const Devices& devices, const std::vector<Port>& ports) {
    const auto layer = uint64_t(ports[0].attributes.link_layer);
    std::set<uint64_t> subnets;
    // Routers join the subnets of RoCE, so that all of Ethernet is one network.
    for (const Port& port : ports) subnets.insert(layer == link_ethernet ? 0 : subnet_of(devices, port));
    std::vector<uint32_t> networks;
    for (const uint64_t subnet : subnets)
        networks.push_back(uint32_t((subnet ^ subnet >> 29 ^ layer) * 0x9e3779b97f4a7c15u >> 32) | 1);
    return networks;
}

NetworkSpeed speed_of(const Devices& devices, const std::vector<Port>& ports, int rails) {
    std::vector<PortRate> rates;
    for (const Port& port : ports) {
        const auto beside =
            std::count_if(ports.begin(), ports.end(), [&](const Port& other) { return other.device == port.device; });
        rates.push_back({.device = port.device,
                         .mbps = devices.all()[port.device].context->mbps(port.attributes, port.number),
                         .bus_mbps = beside > 1 ? int(8'000 * topology::bus_gbs(port.name)) : 0});
    }
    const bool ethernet = ports[0].attributes.link_layer == link_ethernet;
    return speed_of_link(ethernet ? LinkClass::roce : LinkClass::infiniband, rates, rails);
}

NetworkSpeed speed_of_link(LinkClass link, std::span<const PortRate> ports, int rails) {
    const int count = std::min(int(ports.size()), INT16_MAX);
    NetworkSpeed speed{.link = link, .mbps = 0, .rails = int16_t(std::clamp(rails, 1, count)), .ports = int16_t(count)};
    for (const PortRate& port : ports)
        if (port.mbps > 0 && (speed.mbps == 0 || port.mbps < speed.mbps)) speed.mbps = port.mbps;
    if (speed.mbps == 0) return speed;
    // The rate of these ports together.
    const auto mbps_of = [slowest = speed.mbps](std::span<const PortRate> used) {
        int64_t together = 0;
        for (const PortRate& port : used) {
            const auto beside = std::count_if(used.begin(), used.end(),
                                              [&](const PortRate& other) { return other.device == port.device; });
            together += beside > 1 && port.bus_mbps > 0 ? std::min(slowest, int(port.bus_mbps / beside)) : slowest;
        }
        return together;
    };
    speed.mbps = std::max(1, int(mbps_of(ports.first(size_t(speed.rails))) / speed.rails));
    speed.ports =
        int16_t(std::clamp(mbps_of(ports.first(size_t(count))) / speed.mbps, int64_t(speed.rails), int64_t(count)));
    return speed;
}

}  // namespace weft::internal::verbs
