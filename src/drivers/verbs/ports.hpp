// ports.hpp: the RDMA ports of this host, and which of them the user's settings admit, with the reason for the others.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/drivers/verbs/context.hpp"
#include "src/drivers/verbs/memory.hpp"
#include "src/drivers/verbs/settings.hpp"

namespace weft::internal::verbs {

// A port, or a device that does not answer (number 0). A value.
struct IbPort {
    std::string device = {};  // "mlx5_0"
    int number = 0;
    int state = 0;       // as in abi::PortAttributes
    int link_layer = 0;  // 0: neither InfiniBand nor RoCE
    int mtu = 0;         // the active one, 1 (256 bytes) to 5 (4,096 bytes)
    int mbps = -1;       // of all lanes; -1: unknown
    uint16_t lid = 0;
    bool needs_grh = false;
    std::vector<PortGid> gids = {};
    std::vector<uint16_t> pkeys = {};     // by index, 0: none
    int global_traffic_class = -1;        // of the whole port, which overrides that of queue pairs; -1: none
    DeviceWish wish = {};                 // its rail and plane in WEFT_IB_DEVICES
    int pkey_index = 0;                   // by admit_ports()
    std::string why_not = {};             // not empty: it is not used, for this reason
    std::vector<std::string> notes = {};  // what may make it slow, or not work

    std::string name() const;     // "mlx5_0:1"
    std::string summary() const;  // "RoCE, 100 Gb/s, MTU 4096, 4 GIDs"
    bool usable() const { return why_not.empty(); }
    bool has_known_network() const { return link_layer == link_infiniband || link_layer == link_ethernet; }
};

// Opens each device and closes it, which takes milliseconds. Makes an address with each GID of RoCE, so that one whose
// network device is gone or in another namespace is known.
std::vector<IbPort> read_ports(const DeviceList& devices);
// One of an open device; no domain: GIDs are not tried. A port that does not answer has a why_not.
IbPort read_port(const Context& context, const ProtectionDomain* domain, int number);
// Sets why_not, notes, wish and pkey_index. option.value: a used port lacks the GID index or the partition key that a
// variable of Weft's names. Reentrant.
Status admit_port(const IbSettings& settings, IbPort& port);
// The link layer that this host prefers: that of its usable ports. If there are two, that with the fastest port, or else
// InfiniBand. InfiniBand and Ethernet do not reach each other, so two ranks use a layer that both hosts have. 0: no port.
int preferred_link_layer(const std::vector<IbPort>& ports);
// Whether a host prefers Ethernet, by the fastest ports of both layers in Mb/s.
inline bool prefers_ethernet(int infiniband_mbps, int ethernet_mbps) { return ethernet_mbps > infiniband_mbps; }
// Both for all ports. Besides, option.names: WEFT_IB_DEVICES names no device here.
Status admit_ports(const IbSettings& settings, std::vector<IbPort>& ports);

}  // namespace weft::internal::verbs
