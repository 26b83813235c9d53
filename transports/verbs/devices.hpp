// devices.hpp: the RDMA devices that this process has opened, and the ports that its links use.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/drivers/verbs/context.hpp"
#include "src/drivers/verbs/memory.hpp"
#include "src/drivers/verbs/ports.hpp"
#include "transports/transport.hpp"
#include "transports/verbs/lanes/probe_page.hpp"
#include "transports/verbs/settings.hpp"

namespace weft::internal::verbs {

// An open device, and the domain of all memory and queue pairs on it. Immutable.
struct Device {
    std::unique_ptr<Context> context;
    std::unique_ptr<ProtectionDomain> domain;
    std::unique_ptr<ProbePage> probe;  // null: it could not be registered
    ProbeTarget probe_target() const { return probe ? probe->target() : ProbeTarget(); }
};

// A port that links may use.
struct Port {
    size_t device = 0;  // in Devices::all()
    int number = 1;
    abi::PortAttributes attributes{};
    std::string text() const;  // "mlx5_0:1"
    std::string name;          // of the device
};

// Opened at first use, for the rest of the process: opening takes milliseconds. A child after fork opens its own.
// Thread-safe.
class Devices {
  public:
    // verbs.device, verbs.call, driver.missing: the sentence says why the process has no devices.
    static Result<const Devices*> of_process();
    Devices() = default;
    Devices(const Devices&) = delete;

    const std::vector<Device>& all() const { return all_; }
    // The ports that the settings admit, as they are now, of both link layers. verbs.device: there is none. option.value:
    // as admit_port().
    Result<std::vector<Port>> ports(const Settings& settings) const;
    // Whether the settings admit a port of the device, up or down. A device that serves no link may refuse memory.
    bool serves_links(size_t device, const Settings& settings) const;
    // Every port, for `weft info`.
    std::vector<Rail> rails(const Settings& settings) const;

  private:
    static Result<std::unique_ptr<Devices>> open(const Settings& settings);
    std::vector<IbPort> known_ports(const Settings& settings, Status& wrong) const;
    std::vector<Device> all_;
};

// The ports of each link layer; the layer that this host prefers (prefers_ethernet()) comes first.
std::vector<std::vector<Port>> by_layer(const Devices& devices, const std::vector<Port>& ports);
// The numbers of the subnets of ports of one layer, each equal on all its hosts; never 0.
std::vector<uint32_t> networks_of(const Devices& devices, const std::vector<Port>& ports);
// Of ports of one layer. A link uses so many `rails` of them, and any of them, so the slowest counts.
NetworkSpeed speed_of(const Devices& devices, const std::vector<Port>& ports, int rails);

// A port, in the order in which links take them.
struct PortRate {
    size_t device = 0;
    int mbps = 0;      // the line rate; 0: unknown
    int bus_mbps = 0;  // of the device's bus, which its ports share; 0: unknown
};
// A pure function. One port alone has its line rate, which the costs of its generation are for.
NetworkSpeed speed_of_link(LinkClass link, std::span<const PortRate> ports, int rails);

}  // namespace weft::internal::verbs
