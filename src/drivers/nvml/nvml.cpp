#include "src/drivers/nvml/nvml.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include "src/base/options.hpp"
#include "src/base/per_process.hpp"
#include "src/drivers/library.hpp"

namespace weft::nvml {

namespace {

constexpr int success = 0;
constexpr unsigned links_max = 18;  // of the GPUs there are

struct Opened {
    std::mutex opening;
    const Nvml* nvml = nullptr;  // never freed
    Status failure;
};

}  // namespace

Result<const Nvml*> Nvml::get() {
    // NVML, other than CUDA, may be used anew in a child after fork.
    static PerProcess<Opened> of_process;
    Opened& opened = of_process.get();
    std::lock_guard lock(opened.opening);
    if (opened.nvml == nullptr && opened.failure.ok()) {
        if (Result<const Nvml*> result = open(options().nvml_library); result)
            opened.nvml = *result;
        else
            opened.failure = result.take_status();
    }
    if (opened.nvml != nullptr) return opened.nvml;
    return Status(opened.failure.code(), opened.failure.sentence());
}

Result<const Nvml*> Nvml::open(const std::string& path) {
    const std::string name = path.empty() ? "libnvidia-ml.so.1" : path;
    if (name == "none") return fail(weftInvalidUsage, "WEFT_NVML_LIBRARY is none");
    Result<DynamicLibrary> library = DynamicLibrary::open(name);
    if (!library) return fail(weftSystemError, "no NVML: {}", library.status().sentence());
    std::unique_ptr<Nvml> nvml(new Nvml);
    Functions& all = nvml->functions_;
#define WEFT_NVML_FUNCTION(name, arguments) all.name = reinterpret_cast<int(*) arguments>(library->find("nvml" #name));
#include "src/drivers/nvml/nvml.def"
#undef WEFT_NVML_FUNCTION
    if (all.Init_v2 == nullptr) return fail(weftSystemError, "no NVML: {} is no such library, or too old", name);
    library->keep();
    if (const int result = all.Init_v2(); result != success)
        return fail(weftSystemError, "NVML cannot be used: nvmlInit says {}", result);
    return nvml.release();
}

std::string Nvml::driver_version() const {
    char text[96] = "";
    std::lock_guard lock(calling_);
    if (functions_.SystemGetDriverVersion == nullptr || functions_.SystemGetDriverVersion(text, sizeof text) != success)
        return "";
    return text;
}

// Null if it is unknown. The caller holds the lock.
Device Nvml::find(const std::string& bus_id) const {
    Device device = nullptr;
    if (functions_.DeviceGetHandleByPciBusId_v2 == nullptr ||
        functions_.DeviceGetHandleByPciBusId_v2(bus_id.c_str(), &device) != success)
        return nullptr;
    return device;
}

std::vector<Link> Nvml::links(const std::string& bus_id) const {
    std::vector<Link> all;
    std::lock_guard lock(calling_);
    const Device device = find(bus_id);
    if (device == nullptr || functions_.DeviceGetNvLinkState == nullptr) return all;
    for (unsigned number = 0; number < links_max; ++number) {
        unsigned active = 0;
        if (functions_.DeviceGetNvLinkState(device, number, &active) != success || active == 0) continue;
        Link link;
        link.link = int(number);
        unsigned has = 0;
        constexpr int p2p_supported = 0;
        if (functions_.DeviceGetNvLinkCapability != nullptr &&
            functions_.DeviceGetNvLinkCapability(device, number, p2p_supported, &has) == success)
            link.peer_to_peer = has != 0;
        PciInfo info{};
        if (functions_.DeviceGetNvLinkRemotePciInfo_v2 != nullptr &&
            functions_.DeviceGetNvLinkRemotePciInfo_v2(device, number, &info) == success) {
            // NVML writes eight digits of domain, CUDA and /sys four.
            std::string remote(info.bus_id, strnlen(info.bus_id, sizeof info.bus_id));
            std::transform(remote.begin(), remote.end(), remote.begin(),
                           [](unsigned char letter) { return char(std::tolower(letter)); });
            const bool hidden = remote.compare(0, 8, "ffffffff") == 0;
            if (remote.find(':') == 8 && remote.compare(0, 4, "0000") == 0) remote.erase(0, 4);
            if (!hidden) link.remote_bus_id = remote;
        }
        int kind = 255;
        if (functions_.DeviceGetNvLinkRemoteDeviceType != nullptr &&
            functions_.DeviceGetNvLinkRemoteDeviceType(device, number, &kind) == success)
            link.remote = kind == 0   ? RemoteKind::gpu
                          : kind == 1 ? RemoteKind::npu
                          : kind == 2 ? RemoteKind::nvswitch
                                      : RemoteKind::unknown;
        all.push_back(link);
    }
    return all;
}

std::optional<Fabric> Nvml::fabric(const std::string& bus_id) const {
    std::lock_guard lock(calling_);
    const Device device = find(bus_id);
    if (device == nullptr || functions_.DeviceGetGpuFabricInfoV == nullptr) return {};
    FabricInfo info{};
    info.version = unsigned(sizeof info) | 2u << 24;
    constexpr uint8_t completed = 3;
    if (functions_.DeviceGetGpuFabricInfoV(device, &info) != success || info.state != completed ||
        info.status != success)
        return {};
    Fabric fabric;
    std::memcpy(fabric.cluster.data(), info.cluster, fabric.cluster.size());
    fabric.clique = info.clique;
    if (fabric.cluster == std::array<uint8_t, 16>{}) return {};  // of no domain
    return fabric;
}

PeerStatus Nvml::peer_status(const std::string& from, const std::string& to, int index) const {
    std::lock_guard lock(calling_);
    const Device one = find(from), other = find(to);
    int status = -1;
    if (one == nullptr || other == nullptr || functions_.DeviceGetP2PStatus == nullptr ||
        functions_.DeviceGetP2PStatus(one, other, index, &status) != success)
        return PeerStatus::unknown;
    constexpr int disabled_by_registry = 4;
    return status == 0                      ? PeerStatus::ok
           : status == disabled_by_registry ? PeerStatus::disabled
                                            : PeerStatus::not_supported;
}

}  // namespace weft::nvml
