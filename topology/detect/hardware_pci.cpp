// hardware_pci.cpp: reads PCI devices from /sys: their place, and the maximum and current speed of their links.
#include <algorithm>

#include "topology/detect/hardware.hpp"
#include "topology/model/speeds.hpp"

namespace weft::internal::topology {

namespace {

// The maximum of a device's end of a link, or the current state of the link.
struct PciLink {
    std::string speed;
    int width = unknown;
};

class PciSource {
  public:
    PciSource(SystemFiles& sys, Hardware& hardware) : sys_(sys), hardware_(hardware) {}
    void add() {
        for (const std::string& name : sys_.names(folder_)) {
            const std::string busid = normal_busid(name);
            if (!busid.empty()) add(name, busid);
        }
        for (const auto& [busid, name] : names_) set_link(busid, hardware_.devices[busid]);
        // A virtual function has no link.
        for (const auto& [busid, name] : names_) {
            Pci& pci = hardware_.devices[busid].pci;
            const auto physical = hardware_.devices.find(pci.virtual_of);
            if (pci.virtual_of.empty() || physical == hardware_.devices.end()) continue;
            pci.link_speed = physical->second.pci.link_speed;
            pci.link_width = physical->second.pci.link_width;
        }
    }

  private:
    void add(const std::string& name, const std::string& busid) {
        const std::string folder = folder_ + '/' + name;
        names_.emplace_back(busid, name);
        PciDevice& device = hardware_.devices[busid];
        std::vector<std::string> above = bus_ids_in(sys_.target(folder));
        if (!above.empty() && above.back() == busid) {
            above.pop_back();
            device.bridges.assign(above.rbegin(), above.rend());
        }
        const auto take = [&](const char* file, std::string& value) {
            if (auto text = sys_.text(folder + '/' + file); text && text->size() < 32) value = std::move(*text);
        };
        take("class", device.pci.device_class);
        take("vendor", device.pci.vendor);
        take("device", device.pci.device);
        take("subsystem_vendor", device.pci.subsystem_vendor);
        take("subsystem_device", device.pci.subsystem_device);
        if (const auto numa = sys_.number(folder + "/numa_node"); numa && *numa >= 0 && *numa < 65'536)
            device.numa = int(*numa);
        if (sys_.exists(folder + "/physfn"))
            if (const auto physical = bus_ids_in(sys_.target(folder + "/physfn")); !physical.empty())
                device.pci.virtual_of = physical.back();
    }

    // `which`: "max" or "current".
    PciLink read_link(const std::string& busid, const char* which) {
        PciLink link;
        const std::string file = folder_ + '/' + busid + '/' + which + "_link_";
        if (const auto speed = sys_.text(file + "speed"); speed && pci_transfers(*speed) > 0) link.speed = *speed;
        // Linux reports 0, 63 and 255 if there is no link.
        if (const auto width = sys_.number(file + "width"); width && *width > 0 && *width <= 32)
            link.width = int(*width);
        return link;
    }
    static PciLink slower(const PciLink& one, const PciLink& other) {
        PciLink both = one;
        if (one.speed.empty() || (!other.speed.empty() && lane_gbs(other.speed) < lane_gbs(one.speed)))
            both.speed = other.speed;
        if (one.width == unknown || (other.width != unknown && other.width < one.width)) both.width = other.width;
        return both;
    }
    static double lane_gbs(const std::string& speed) {
        Pci pci;
        pci.link_speed = speed;
        pci.link_width = 1;
        return pci_speed(pci).bandwidth_gbs;
    }

    void set_link(const std::string& busid, PciDevice& device) {
        const NodeKind kind = device.kind();
        // Of bridges only the upper ends of switches: other bridges report the link below them. Above an upper end
        // there are the host's port, and two bridges for each further switch.
        const bool upper_end = device.pci.device_class.compare(0, 6, "0x0604") == 0 && device.bridges.size() % 2 == 1;
        if (kind == NodeKind::pci && !upper_end) return;
        PciLink link = read_link(busid, "max");
        if (!device.bridges.empty()) link = slower(link, read_link(device.bridges[0], "max"));
        const PciLink now = read_link(busid, "current");
        PciLink used = link;
        // Missing lanes are a fault. A lower rate is not, because GPUs lower the rate of idle links.
        if (now.width != unknown) used.width = slower(link, now).width;
        if (kind == NodeKind::nic) used.speed = slower(link, now).speed;
        if ((used.width != link.width && link.width != unknown) || (used.speed != link.speed && !link.speed.empty()))
            hardware_.notes.push_back(fmt::format("{} runs at {} x{}, though it and its slot can {} x{}", busid,
                                                  used.speed, used.width, link.speed, link.width));
        if (!used.speed.empty()) device.pci.link_speed = used.speed;
        if (used.width != unknown) device.pci.link_width = used.width;
    }

    const std::string folder_ = "bus/pci/devices";
    SystemFiles& sys_;
    Hardware& hardware_;
    std::vector<std::pair<std::string, std::string>> names_;  // bus ids, normalised and as in /sys
};

}  // namespace

std::vector<std::string> bus_ids_in(const std::string& path) {
    std::vector<std::string> found;
    for (size_t begin = 0; begin < path.size();) {
        const size_t end = std::min(path.find('/', begin), path.size());
        if (std::string busid = normal_busid(path.substr(begin, end - begin)); !busid.empty())
            found.push_back(std::move(busid));
        begin = end + 1;
    }
    return found;
}

void add_pci_devices(SystemFiles& sys, Hardware& hardware) { PciSource(sys, hardware).add(); }

}  // namespace weft::internal::topology
