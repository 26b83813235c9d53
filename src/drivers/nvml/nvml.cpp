#include "src/drivers/nvml/nvml.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include "src/base/fd.hpp"
#include "src/base/options.hpp"
#include "src/base/per_process.hpp"
#include "src/drivers/library.hpp"

namespace weft::internal::nvml {

namespace {

constexpr int success = 0;
constexpr unsigned links_max = 18;  // the most that an existing GPU has
constexpr unsigned gpus_max = 4'096;
constexpr int versions_max = 100;  // of compute capabilities: 10 minor versions for each major one

// NVML writes the PCI domain with eight capital digits, CUDA and /sys with four lower-case ones. Empty: hidden.
std::string bus_id_of(const PciInfo& info) {
    std::string text(info.bus_id, strnlen(info.bus_id, sizeof info.bus_id));
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char letter) { return char(std::tolower(letter)); });
    if (text.compare(0, 8, "ffffffff") == 0) return {};
    if (text.find(':') == 8 && text.compare(0, 4, "0000") == 0) text.erase(0, 4);
    return text;
}

const char* text_of(int result) {
    switch (result) {
        case 2: return "invalid argument";
        case 3: return "not supported";
        case 4: return "no permission";
        case 9: return "the driver is not loaded";
        case 15: return "the GPU is lost";
        case 999: return "unknown error";
        default: return "error";
    }
}

struct OpenedNvml {
    std::mutex opening;
    const Nvml* nvml = nullptr;  // never freed
    Status failure;
};

}  // namespace

Result<const Nvml*> Nvml::get() {
    // NVML, unlike CUDA, can be initialised again in a child after fork.
    static PerProcess<OpenedNvml> of_process;
    OpenedNvml& opened = of_process.get();
    std::lock_guard lock(opened.opening);
    if (opened.nvml == nullptr && opened.failure.ok()) {
        if (Result<const Nvml*> result = open(options().nvml_library); result)
            opened.nvml = *result;
        else
            opened.failure = result.take_status();
    }
    if (opened.nvml != nullptr) return opened.nvml;
    return opened.failure.copy();
}

Result<const Nvml*> Nvml::open(const std::string& path) {
    const std::string name = path.empty() ? "libnvidia-ml.so.1" : path;
    if (name == "none") return fail(error::driver_disabled, "WEFT_NVML_LIBRARY is none");
    Result<DynamicLibrary> library = DynamicLibrary::open(name);
    if (!library) return fail(error::driver_missing, "no NVML: {}", library.status().sentence());
    std::unique_ptr<Nvml> nvml(new Nvml);
    NvmlFunctions& all = nvml->functions_;
#define WEFT_NVML_FUNCTION(name, arguments) all.name = reinterpret_cast<int(*) arguments>(library->find("nvml" #name));
#include "src/drivers/nvml/nvml.def"
#undef WEFT_NVML_FUNCTION
    if (all.Init_v2 == nullptr) return fail(error::driver_missing, "no NVML: {} is another library, or too old", name);
    library->keep();
    const StandardNumbers held;
    if (const int result = all.Init_v2(); result != success)
        return fail(error::driver_missing, "NVML cannot be used: nvmlInit returned {}", result);
    return nvml.release();
}

std::string Nvml::driver_version() const {
    char text[96] = "";
    std::lock_guard lock(calling_);
    if (functions_.SystemGetDriverVersion == nullptr || functions_.SystemGetDriverVersion(text, sizeof text) != success)
        return "";
    return text;
}

// Null if the GPU is unknown. The caller holds the lock.
Device Nvml::find(const std::string& bus_id) const {
    Device device = nullptr;
    if (functions_.DeviceGetHandleByPciBusId_v2 == nullptr ||
        functions_.DeviceGetHandleByPciBusId_v2(bus_id.c_str(), &device) != success)
        return nullptr;
    return device;
}

std::vector<NvlinkState> Nvml::links(const std::string& bus_id) const {
    std::vector<NvlinkState> all;
    std::lock_guard lock(calling_);
    const Device device = find(bus_id);
    if (device == nullptr || functions_.DeviceGetNvLinkState == nullptr) return all;
    for (unsigned number = 0; number < links_max; ++number) {
        unsigned active = 0;
        if (functions_.DeviceGetNvLinkState(device, number, &active) != success || active == 0) continue;
        NvlinkState link;
        link.link = int(number);
        unsigned has = 0;
        constexpr int p2p_supported = 0;
        if (functions_.DeviceGetNvLinkCapability != nullptr &&
            functions_.DeviceGetNvLinkCapability(device, number, p2p_supported, &has) == success)
            link.peer_to_peer = has != 0;
        PciInfo info{};
        if (functions_.DeviceGetNvLinkRemotePciInfo_v2 != nullptr &&
            functions_.DeviceGetNvLinkRemotePciInfo_v2(device, number, &info) == success) {
            link.remote_bus_id = bus_id_of(info);
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

int Nvml::links_down(const std::string& bus_id) const {
    int down = 0;
    std::lock_guard lock(calling_);
    const Device device = find(bus_id);
    if (device == nullptr || functions_.DeviceGetNvLinkState == nullptr) return 0;
    for (unsigned number = 0; number < links_max; ++number) {
        unsigned active = 0;
        down += functions_.DeviceGetNvLinkState(device, number, &active) == success && active == 0;
    }
    return down;
}

std::vector<Listed> Nvml::devices(std::vector<std::string>& notes) const {
    std::vector<Listed> all;
    std::lock_guard lock(calling_);
    unsigned count = 0;
    if (functions_.DeviceGetCount_v2 == nullptr || functions_.DeviceGetHandleByIndex_v2 == nullptr ||
        functions_.DeviceGetPciInfo_v3 == nullptr) {
        notes.push_back("this NVML is too old to list GPUs: their links are unknown");
        return all;
    }
    if (const int result = functions_.DeviceGetCount_v2(&count); result != success) {
        notes.push_back(fmt::format("NVML cannot count the GPUs: {} ({})", text_of(result), result));
        return all;
    }
    if (count > gpus_max) notes.push_back(fmt::format("NVML counts {} GPUs: {} are looked at", count, gpus_max));
    for (unsigned index = 0; index < std::min(count, gpus_max); ++index) {
        Device device = nullptr;
        PciInfo info{};
        int result = functions_.DeviceGetHandleByIndex_v2(index, &device);
        if (result == success) result = functions_.DeviceGetPciInfo_v3(device, &info);
        Listed listed;
        listed.index = int(index);
        listed.bus_id = bus_id_of(info);
        if (result != success || listed.bus_id.empty()) {
            notes.push_back(fmt::format("NVML does not describe GPU {}: {} ({})", index,
                                        result == success ? "its bus id is hidden" : text_of(result), result));
            continue;
        }
        int major = 0, minor = 0;
        if (functions_.DeviceGetCudaComputeCapability != nullptr &&
            functions_.DeviceGetCudaComputeCapability(device, &major, &minor) == success && major > 0 &&
            major < versions_max && minor >= 0 && minor < 10)
            listed.sm = 10 * major + minor;
        unsigned generation = 0, lanes = 0;
        if (functions_.DeviceGetMaxPcieLinkGeneration != nullptr &&
            functions_.DeviceGetMaxPcieLinkGeneration(device, &generation) == success)
            listed.pcie_generation = int(generation);
        if (functions_.DeviceGetMaxPcieLinkWidth != nullptr &&
            functions_.DeviceGetMaxPcieLinkWidth(device, &lanes) == success)
            listed.pcie_lanes = int(lanes);
        all.push_back(listed);
    }
    return all;
}

// The value of the field with this number. The caller holds the lock.
std::optional<long long> Nvml::field(Device device, unsigned number, unsigned scope) const {
    if (functions_.DeviceGetFieldValues == nullptr) return {};
    FieldValue asked{};
    asked.field = number;
    asked.scope = scope;
    if (functions_.DeviceGetFieldValues(device, 1, &asked) != success || asked.result != success) return {};
    switch (asked.type) {
        case 1: return asked.value.word;
        case 2: return (long long)asked.value.long_word;
        case 3: return (long long)asked.value.wide;
        case 4: return asked.value.signed_wide;
        case 5: return asked.value.number;
        default: return {};
    }
}

std::optional<ChipToChip> Nvml::chip_to_chip(const std::string& bus_id) const {
    constexpr unsigned link_count = 170, link_status = 171, link_mbs = 172;
    constexpr long long links_most = 64;
    std::lock_guard lock(calling_);
    const Device device = find(bus_id);
    if (device == nullptr) return {};
    const std::optional<long long> count = field(device, link_count, 0);
    ChipToChip all;
    for (long long link = 0; count && link < std::min(*count, links_most); ++link) {
        const auto status = field(device, link_status, unsigned(link)), mbs = field(device, link_mbs, unsigned(link));
        if (status.value_or(0) != 1 || mbs.value_or(0) <= 0) continue;
        ++all.count;
        // All C2C links of one GPU have the same speed.
        all.bandwidth_mbs = int(std::min(*mbs, 100'000'000LL));
    }
    return all.count > 0 ? std::optional(all) : std::nullopt;
}

std::optional<NvlinkDomain> Nvml::fabric(const std::string& bus_id) const {
    std::lock_guard lock(calling_);
    const Device device = find(bus_id);
    if (device == nullptr || functions_.DeviceGetGpuFabricInfoV == nullptr) return {};
    FabricInfo info{};
    info.version = unsigned(sizeof info) | 2u << 24;
    constexpr uint8_t completed = 3;
    if (functions_.DeviceGetGpuFabricInfoV(device, &info) != success || info.state != completed ||
        info.status != success)
        return {};
    NvlinkDomain fabric;
    std::memcpy(fabric.cluster.data(), info.cluster, fabric.cluster.size());
    fabric.clique = info.clique;
    if (fabric.cluster == std::array<uint8_t, 16>{}) return {};  // the GPU is in no domain
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

}  // namespace weft::internal::nvml
