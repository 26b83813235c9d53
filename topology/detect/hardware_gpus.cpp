// hardware_gpus.cpp: reads GPUs and their links from NVML, and whether NICs can access their memory.
#include <algorithm>
#include <charconv>

#include "topology/detect/hardware.hpp"
#include "topology/model/notes.hpp"

namespace weft::internal::topology {

namespace {

constexpr const char* nvidia = "0x10de";
constexpr const char* gpu_class = "0x030200";
constexpr const char* nvswitch_class = "0x068000";
constexpr const char* cpu_class = "0x068001";
constexpr const char* hidden = "fffffff:ffff:ff";  // NCCL's bus id for a device that a virtual machine hides

const char* generation_text(int generation) {
    constexpr const char* texts[] = {
        "", "2.5 GT/s PCIe", "5.0 GT/s PCIe", "8.0 GT/s PCIe", "16.0 GT/s PCIe", "32.0 GT/s PCIe", "64.0 GT/s PCIe"};
    return generation > 0 && generation < 7 ? texts[generation] : "";
}

std::string domain_of(const nvml::NvlinkDomain& fabric) {
    std::string text;
    for (const uint8_t byte : fabric.cluster) text += fmt::format("{:02x}", byte);
    return fmt::format("{}.{}", text, fabric.clique);
}

// NVLinks that end at the same device are one statement.
Nvlinks links_of(const nvml::Nvml& nvml, const std::string& busid, Hardware& hardware) {
    Nvlinks all;
    all.busid = busid;
    for (const nvml::NvlinkState& link : nvml.links(busid)) {
        Statement statement;
        statement.target = normal_busid(link.remote_bus_id);
        if (statement.target == busid) {
            say(hardware.notes, "NVML says that NVLink {} of {} leads to itself: it is left out", link.link, busid);
            continue;
        }
        // A device that the virtual machine hides is a switch, because other GPUs are visible.
        const bool to_switch = link.remote == nvml::RemoteKind::nvswitch ||
                               (link.remote != nvml::RemoteKind::npu && statement.target.empty());
        const auto device = hardware.devices.find(statement.target);
        statement.target_class = to_switch                                 ? nvswitch_class
                                 : link.remote == nvml::RemoteKind::npu    ? cpu_class
                                 : device == hardware.devices.end()        ? gpu_class
                                 : device->second.pci.device_class.empty() ? gpu_class
                                                                           : device->second.pci.device_class;
        if (statement.target.empty()) statement.target = hidden;
        const auto same = std::find_if(all.statements.begin(), all.statements.end(), [&](const Statement& it) {
            return it.target == statement.target && it.target_class == statement.target_class;
        });
        if (same != all.statements.end())
            ++same->count;
        else
            all.statements.push_back(std::move(statement));
    }
    if (const auto c2c = nvml.chip_to_chip(busid)) {
        Statement statement;
        statement.kind = LinkKind::c2c;
        statement.count = c2c->count;
        statement.bandwidth_mbs = c2c->bandwidth_mbs;
        all.statements.push_back(std::move(statement));
    }
    return all;
}

void add_gpu(const nvml::Nvml& nvml, const nvml::Listed& listed, const std::string& busid, Hardware& hardware) {
    Gpu& gpu = hardware.gpus[busid];
    gpu.dev = listed.index;
    if (listed.sm > 0) gpu.sm = listed.sm;
    if (const auto fabric = nvml.fabric(busid)) gpu.domain = domain_of(*fabric);
    PciDevice& device = hardware.devices[busid];
    if (device.kind() != NodeKind::gpu) device.pci.device_class = gpu_class;
    if (device.pci.vendor.empty()) device.pci.vendor = nvidia;
    if (device.pci.link_speed.empty()) device.pci.link_speed = generation_text(listed.pcie_generation);
    if (device.pci.link_width == unknown && listed.pcie_lanes > 0 && listed.pcie_lanes <= 32)
        device.pci.link_width = listed.pcie_lanes;
    hardware.links.push_back(links_of(nvml, busid, hardware));
}

// GPUs on cards have unconnected NVLinks: if no link is up, none is missing.
void note_links_down(const nvml::Nvml& nvml, Hardware& hardware) {
    const auto active = [](const Nvlinks& links) {
        int count = 0;
        for (const Statement& it : links.statements) count += it.kind == LinkKind::nvlink ? it.count : 0;
        return count;
    };
    if (std::none_of(hardware.links.begin(), hardware.links.end(), active)) return;
    for (const Nvlinks& links : hardware.links)
        if (const int down = nvml.links_down(links.busid); down > 0)
            hardware.notes.push_back(fmt::format("{} of {} NVLinks of GPU {} ({}) are down", down, active(links) + down,
                                                 hardware.gpus[links.busid].dev, links.busid));
}

// "5.15.0-113-generic"
bool at_least(const std::string& release, int major_wanted, int minor_wanted) {
    int major = 0, minor = 0;
    const char* end = release.data() + release.size();
    const auto [dot, error] = std::from_chars(release.data(), end, major);
    if (error != std::errc() || dot == end || *dot != '.') return false;
    std::from_chars(dot + 1, end, minor);
    return major > major_wanted || (major == major_wanted && minor >= minor_wanted);
}

}  // namespace

void add_gpus(const nvml::Nvml& nvml, Hardware& hardware) {
    const std::vector<nvml::Listed> all = nvml.devices(hardware.notes);
    for (const nvml::Listed& listed : all)
        if (const std::string busid = normal_busid(listed.bus_id); !busid.empty())
            add_gpu(nvml, listed, busid, hardware);
    note_links_down(nvml, hardware);
    for (const auto& [busid, device] : hardware.devices)
        if (!all.empty() && device.kind() == NodeKind::gpu && device.pci.vendor == nvidia &&
            hardware.gpus.count(busid) == 0)
            hardware.notes.push_back(
                fmt::format("{} is a GPU that NVML does not list: this process may not use it, or it is lost", busid));
}

void add_gpudirect(SystemFiles& sys, SystemFiles& proc, Hardware& hardware) {
    const bool rdma = std::any_of(hardware.interfaces.begin(), hardware.interfaces.end(),
                                  [](const Interface& it) { return it.rdma; });
    if (!rdma || hardware.gpus.empty()) return;
    bool peermem = false;
    for (const char* file :
         {"module/nvidia_peermem", "kernel/mm/memory_peers/nvidia-peermem", "kernel/mm/memory_peers/nv_mem"})
        peermem = peermem || sys.exists(file);
    // dma-buf: since Linux 5.12, with NVIDIA's open kernel modules.
    const bool dma_buf =
        at_least(proc.text("sys/kernel/osrelease").value_or(""), 5, 12) &&
        proc.text("driver/nvidia/version").value_or("").find("Open Kernel Module") != std::string::npos;
    bool works = false;
    for (Interface& it : hardware.interfaces) {
        if (!it.rdma) continue;
        it.port.gdr = int(peermem || (dma_buf && it.dma_buf.value_or(true)));
        works = works || it.port.gdr == 1;
        if (dma_buf && it.port.gdr == 0)
            say(hardware.notes,
                "port {} of {} does not reach the memory of GPUs: its driver, or this libibverbs, cannot register a "
                "dma-buf, and nvidia-peermem is not loaded",
                it.port.number, it.port.name);
    }
    for (auto& [busid, gpu] : hardware.gpus) gpu.gdr = int(works);
    if (!peermem && !dma_buf)
        hardware.notes.push_back(
            "NICs do not reach the memory of GPUs: neither is the module nvidia-peermem loaded, nor can dma-buf be "
            "used, "
            "which needs Linux 5.12 and NVIDIA's open kernel modules");
}

}  // namespace weft::internal::topology
