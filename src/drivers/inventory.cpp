#include "src/drivers/inventory.hpp"

#include <map>

#include "src/drivers/cuda/device.hpp"
#include "src/drivers/nvml/nvml.hpp"

namespace weft::internal {

namespace {

std::string mode_text(int mode) {
    return mode == CU_COMPUTEMODE_PROHIBITED          ? "prohibited"
           : mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS ? "exclusive process"
                                                      : "default";
}

std::vector<std::string> features_of(const cuda::DeviceProperties& properties) {
    std::vector<std::string> all;
    const auto note = [&](bool has, const char* name) {
        if (has) all.push_back(name);
    };
    note(properties.cooperative_launch, "cooperative launch");
    note(properties.vmm, "VMM");
    note(properties.vmm_fd, "export by fd");
    note(properties.vmm_fabric, "export to the fabric");
    note(properties.ipc_events, "IPC events");
    note(properties.memory_operations, "stream memory operations");
    note(properties.multicast, "multicast");
    note(properties.dma_buf, "dma-buf");
    note(properties.mps, "MPS");
    return all;
}

std::string ends_of(const std::vector<nvml::NvlinkState>& links) {
    std::map<std::string, int> ends;
    for (const nvml::NvlinkState& link : links) {
        const std::string end = link.remote == nvml::RemoteKind::nvswitch ? "switches"
                                : link.remote_bus_id.empty()              ? "somewhere hidden"
                                                                          : link.remote_bus_id;
        ++ends[end];
    }
    std::string text;
    for (const auto& [end, count] : ends) text += fmt::format("{}{} to {}", text.empty() ? "" : ", ", count, end);
    return text;
}

GpuInventory describe_gpu(const cuda::Driver& driver, const nvml::Nvml* nvml, int device, int devices) {
    GpuInventory gpu;
    gpu.device = device;
    const Result<cuda::DeviceProperties> properties = cuda::describe_device(driver, device);
    if (!properties) {
        gpu.problem = properties.status().sentence();
        return gpu;
    }
    gpu.name = properties->name;
    gpu.uuid = properties->uuid_text();
    gpu.bus_id = properties->bus_id;
    gpu.sm = properties->sm;
    gpu.multiprocessors = properties->multiprocessors;
    gpu.memory_bytes = properties->memory_bytes;
    gpu.compute_mode = mode_text(properties->compute_mode);
    gpu.features = features_of(*properties);
    for (int peer = 0; peer < devices; ++peer) {
        if (peer == device) continue;
        if (const auto access = cuda::peer_access(driver, device, peer); access && access->reachable)
            gpu.peers.push_back(peer);
    }
    if (nvml != nullptr) {
        const std::vector<nvml::NvlinkState> links = nvml->links(gpu.bus_id);
        gpu.nvlinks = int(links.size());
        gpu.nvlink_ends = ends_of(links);
        if (const auto domain = nvml->fabric(gpu.bus_id)) {
            gpu.nvlink_domain = "cluster ";
            for (const uint8_t byte : domain->cluster) gpu.nvlink_domain += fmt::format("{:02x}", byte);
            gpu.nvlink_domain += fmt::format(", clique {}", domain->clique);
        }
    }
    return gpu;
}

}  // namespace

DriverInventory describe_drivers() {
    DriverInventory all;
    const nvml::Nvml* nvml = nullptr;
    if (Result<const nvml::Nvml*> opened = nvml::Nvml::get(); opened) {
        nvml = *opened;
        all.nvml_version = nvml->driver_version();
    } else {
        all.nvml_why_not = opened.status().sentence();
    }
    const Result<const cuda::Driver*> opened = cuda::Driver::get();
    if (!opened) {
        all.cuda_why_not = opened.status().sentence();
        return all;
    }
    const cuda::Driver& driver = **opened;
    all.cuda_library = driver.file();
    all.cuda_version = cuda::version_text(driver.version());
    // The error that loading device code would give; no context is made.
    if (driver.version() / 1000 < CUDA_VERSION / 1000)
        all.code_why_not =
            fmt::format("the driver is too old for it: it supports CUDA {}, and the code was built with CUDA {}",
                        cuda::version_text(driver.version()), cuda::version_text(CUDA_VERSION));
    const Result<int> devices = cuda::device_count(driver);
    if (!devices) {
        all.cuda_why_not = devices.status().sentence();
        return all;
    }
    for (int device = 0; device < *devices; ++device) all.gpus.push_back(describe_gpu(driver, nvml, device, *devices));
    return all;
}

}  // namespace weft::internal
