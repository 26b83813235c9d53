// hardware_hwloc.cpp: reads a host's hardware from hwloc's objects.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include "topology/detect/hardware.hpp"

namespace weft::internal::topology {

namespace {

int number_of(const std::string& text) {
    int value = unknown;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() && value >= 0 ? value : unknown;
}

// hwloc reports rate and lanes as one number, of bits after the encoding. Takes the slowest rate with which 16 or fewer
// lanes reach it: faster rates with fewer lanes carry as much.
void set_link(double gbs, Pci& pci) {
    struct Rate {
        const char* text;
        double lane_gbs;
    };
    constexpr Rate rates[] = {{"2.5 GT/s PCIe", 0.25},
                              {"5.0 GT/s PCIe", 0.5},
                              {"8.0 GT/s PCIe", 128.0 / 130},
                              {"16.0 GT/s PCIe", 2 * 128.0 / 130},
                              {"32.0 GT/s PCIe", 4 * 128.0 / 130},
                              {"64.0 GT/s PCIe", 8.0}};
    for (const Rate& rate : rates) {
        const double lanes = gbs / rate.lane_gbs;
        const int whole = int(std::lround(std::min(lanes, 64.0)));
        if (whole < 1 || whole > 16 || (whole & (whole - 1)) != 0 || std::abs(lanes - whole) > 0.02 * whole) continue;
        pci.link_speed = rate.text;
        pci.link_width = whole;
        return;
    }
}

class HwlocSource {
  public:
    HwlocSource(const hwloc::HwlocTopology& machine, Hardware& hardware)
        : objects_(machine.objects), hardware_(hardware) {}
    void add() {
        for (const hwloc::Object& object : objects_) {
            if (object.fact("Architecture") != "") hardware_.arch = object.fact("Architecture");
            const CpuMask threads = CpuMask::from_list(object.cpus);
            switch (object.kind) {
                case hwloc::ObjectKind::machine: hardware_.online = threads; break;
                case hwloc::ObjectKind::package: add_package(object, threads); break;
                case hwloc::ObjectKind::numa: add_domain(object, threads); break;
                case hwloc::ObjectKind::core: hardware_.cores.push_back(threads); break;
                case hwloc::ObjectKind::cache:
                    if (object.level > 1 && object.bytes > 0)
                        hardware_.caches.push_back({object.level, object.bytes, threads});
                    break;
                default: break;
            }
        }
        if (hardware_.arch == "aarch64") hardware_.arch = "arm64";
        // All domains are known now.
        for (size_t i = 0; i < objects_.size(); ++i) {
            const hwloc::ObjectKind kind = objects_[i].kind;
            if (kind == hwloc::ObjectKind::pci || kind == hwloc::ObjectKind::bridge) add_device(i);
            if (kind == hwloc::ObjectKind::network) add_network(i);
            if (kind == hwloc::ObjectKind::openfabrics) add_openfabrics(i);
            if (kind == hwloc::ObjectKind::device) add_other(i);
        }
    }

  private:
    void add_package(const hwloc::Object& object, const CpuMask& threads) {
        const int number = object.number >= 0 ? object.number : int(hardware_.packages.size());
        hardware_.packages.push_back({number, threads});
        if (hardware_.vendor.empty()) hardware_.vendor = object.fact("CPUVendor");
        if (hardware_.family == unknown) hardware_.family = number_of(object.fact("CPUFamilyNumber"));
        if (hardware_.model == unknown) hardware_.model = number_of(object.fact("CPUModelNumber"));
    }
    // Memory without processors, as of GPUs and CXL, or with processors of another domain, as HBM beside DRAM, is not a
    // cpu.
    void add_domain(const hwloc::Object& object, const CpuMask& threads) {
        const bool seen = std::any_of(hardware_.domains.begin(), hardware_.domains.end(),
                                      [&](const NumaDomain& it) { return it.threads == threads; });
        if (!threads.empty() && !seen) hardware_.domains.push_back({std::max(0, object.number), threads});
    }
    void add_device(size_t index) {
        const hwloc::Object& object = objects_[index];
        const std::string busid = normal_busid(object.bus_id);
        if (busid.empty()) return;
        PciDevice device;
        const bool bridge = object.kind == hwloc::ObjectKind::bridge;
        device.pci.device_class =
            fmt::format("0x{:04x}00", object.device_class != 0 || !bridge ? object.device_class : 0x0604);
        device.pci.vendor = fmt::format("0x{:04x}", object.vendor);
        device.pci.device = fmt::format("0x{:04x}", object.device);
        if (object.subsystem_vendor != 0 || object.subsystem_device != 0) {
            device.pci.subsystem_vendor = fmt::format("0x{:04x}", object.subsystem_vendor);
            device.pci.subsystem_device = fmt::format("0x{:04x}", object.subsystem_device);
        }
        if (object.link_gbs > 0) set_link(object.link_gbs, device.pci);
        int above = object.parent;
        for (; above >= 0 && objects_[size_t(above)].cpus.empty(); above = objects_[size_t(above)].parent)
            if (const std::string bridge_id = normal_busid(objects_[size_t(above)].bus_id); !bridge_id.empty())
                device.bridges.push_back(bridge_id);
        if (above >= 0) device.numa = domain_of(CpuMask::from_list(objects_[size_t(above)].cpus));
        // A file may name a device twice. The first has its bridges before it, so that no device is above itself.
        hardware_.devices.try_emplace(busid, std::move(device));
    }
    // Of a part of the machine; unknown if it has several domains.
    int domain_of(const CpuMask& threads) const {
        for (const NumaDomain& domain : hardware_.domains)
            if ((domain.threads & threads) == threads) return domain.number;
        return unknown;
    }
    std::string busid_above(size_t index) const {
        for (int above = objects_[index].parent; above >= 0; above = objects_[size_t(above)].parent)
            if (objects_[size_t(above)].kind == hwloc::ObjectKind::pci)
                return normal_busid(objects_[size_t(above)].bus_id);
        return {};
    }
    void add_network(size_t index) {
        Interface made;
        made.port.name = objects_[index].name;
        made.busid = busid_above(index);
        if (!made.busid.empty()) hardware_.interfaces.push_back(std::move(made));
    }
    void add_openfabrics(size_t index) {
        const hwloc::Object& object = objects_[index];
        for (int number = 1;; ++number) {
            const std::string state = object.fact(fmt::format("Port{}State", number));
            if (state.empty() && number > 1) return;
            if (!state.empty() && state != "4") continue;  // active
            Interface made;
            made.rdma = true;
            made.busid = busid_above(index);
            made.port.name = object.name;
            made.port.number = number;
            made.port.gid = object.fact(fmt::format("Port{}GID0", number));
            hardware_.interfaces.push_back(std::move(made));
        }
    }
    // "nvml3" is NVML's name of the GPU above it.
    void add_other(size_t index) {
        const std::string& name = objects_[index].name;
        if (name.compare(0, 4, "nvml") != 0 || number_of(name.substr(4)) == unknown) return;
        if (const std::string busid = busid_above(index); !busid.empty())
            hardware_.gpus[busid].dev = number_of(name.substr(4));
    }

    const std::vector<hwloc::Object>& objects_;
    Hardware& hardware_;
};

}  // namespace

void add_hwloc(const hwloc::HwlocTopology& machine, Hardware& hardware) { HwlocSource(machine, hardware).add(); }

}  // namespace weft::internal::topology
