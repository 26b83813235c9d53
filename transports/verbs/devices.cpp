#include "transports/verbs/devices.hpp"

#include <algorithm>
#include <filesystem>
#include <mutex>

#include "src/base/log.hpp"
#include "src/base/per_process.hpp"

namespace weft::internal::verbs {

namespace {

constexpr int state_active = 4, state_active_temporarily = 5;

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

bool is_active(const abi::PortAttributes& attributes) {
    return attributes.state == state_active || attributes.state == state_active_temporarily;
}

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
    if (settings.library.empty() && !kernel_has_devices())
        return fail(error::verbs_device, "the kernel of this host has no RDMA device");
    auto functions = load_transport_functions(settings.library);
    if (!functions) return functions.take_status();
    auto list = DeviceList::read(*functions);
    if (!list) return list.take_status();
    const std::vector<std::string> names = list->names();
    if (names.empty()) return fail(error::verbs_device, "libibverbs finds no RDMA device");
    WEFT_TRY(settings.devices.check(names));
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
        devices->all_.push_back({std::move(*context), std::move(*domain)});
    }
    if (!last) WEFT_LOG(info, net, "{}", last.text());
    if (devices->all_.empty()) return last;
    return devices;
}

Result<std::vector<Port>> Devices::ports(const Settings& settings) const {
    std::vector<Port> found;
    std::string reasons;
    const auto leave_out = [&](const std::string& port, const std::string& why) {
        reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", port, why);
    };
    for (size_t device = 0; device < all_.size(); ++device) {
        const DeviceFacts& facts = all_[device].context->facts();
        for (int number = 1; number <= facts.ports; ++number) {
            Port port{.device = device, .number = number, .name = facts.name};
            const auto attributes = all_[device].context->port(number);
            if (!attributes) {
                leave_out(port.text(), attributes.status().sentence());
                continue;
            }
            port.attributes = *attributes;
            const bool first = found.empty();
            if (!settings.devices.admits(facts.name, number))
                leave_out(port.text(), "excluded by the list of devices");
            else if (!is_active(*attributes))
                leave_out(port.text(), "the port is not active");
            else if (!first && attributes->link_layer != found[0].attributes.link_layer)
                leave_out(port.text(), fmt::format("its link layer is not {}, as that of {}",
                                                   layer_text(found[0].attributes.link_layer), found[0].text()));
            else
                found.push_back(std::move(port));
        }
    }
    if (found.empty()) return fail(error::verbs_device, "no RDMA port of this host can be used ({})", reasons);
    return found;
}

std::vector<Rail> Devices::rails(const Settings& settings) const {
    std::vector<Rail> rails;
    const auto used = ports(settings);
    for (const Device& device : all_) {
        const DeviceFacts& facts = device.context->facts();
        for (int number = 1; number <= facts.ports; ++number) {
            Rail rail;
            rail.name = fmt::format("{}:{}", facts.name, number);
            const auto attributes = device.context->port(number);
            if (attributes) rail.detail = layer_text(attributes->link_layer);
            if (!attributes)
                rail.why_not = attributes.status().sentence();
            else if (!is_active(*attributes))
                rail.why_not = "the port is not active";
            else if (!used || std::none_of(used->begin(), used->end(),
                                           [&](const Port& port) { return port.text() == rail.name; }))
                rail.why_not = "it is excluded, or has another link layer than the first port";
            rails.push_back(std::move(rail));
        }
    }
    return rails;
}

uint32_t network_of(const Devices& devices, const std::vector<Port>& ports) {
    const bool ethernet = ports[0].attributes.link_layer == link_ethernet;
    // Routers join the subnets of RoCE, so that all of Ethernet is one network.
    uint64_t subnet = ethernet ? 0 : UINT64_MAX;
    for (size_t i = 0; !ethernet && i < ports.size(); ++i) subnet = std::min(subnet, subnet_of(devices, ports[i]));
    const uint64_t mixed = (subnet ^ subnet >> 29 ^ uint64_t(ports[0].attributes.link_layer)) * 0x9e3779b97f4a7c15u;
    return uint32_t(mixed >> 32) | 1;
}

}  // namespace weft::internal::verbs
