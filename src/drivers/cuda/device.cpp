#include "src/drivers/cuda/device.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace weft::internal::cuda {

Result<int> device_count(const Driver& driver) {
    int count = 0;
    WEFT_TRY(driver.check(driver.DeviceGetCount(&count), "count the GPUs"));
    return count;
}

Result<DeviceProperties> describe_device(const Driver& driver, int device) {
    DeviceProperties all;
    all.device = device;
    CUdevice handle = 0;
    WEFT_TRY(driver.check(driver.DeviceGet(&handle, device), "find device {}", device));

    char text[256] = "";
    WEFT_TRY(driver.check(driver.DeviceGetName(text, sizeof text, handle), "query the name of device {}", device));
    all.name = text;
    CUuuid uuid;
    WEFT_TRY(driver.check(driver.DeviceGetUuid(&uuid, handle), "query the UUID of device {}", device));
    std::memcpy(all.uuid.data(), uuid.bytes, all.uuid.size());
    all.bus_id = bus_id_of(driver, device);
    if (all.bus_id.empty()) return fail(error::cuda_call, "CUDA could not query the bus id of device {}", device);
    WEFT_TRY(driver.check(driver.DeviceTotalMem(&all.memory_bytes, handle), "query the memory of device {}", device));

    // An attribute that an old driver does not know is 0: the device lacks the feature.
    const auto attribute = [&](CUdevice_attribute which) {
        int value = 0;
        return driver.DeviceGetAttribute(&value, which, handle) == CUDA_SUCCESS ? value : 0;
    };
    int major = 0, minor = 0;
    WEFT_TRY(driver.check(driver.DeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, handle),
                          "query the compute capability of device {}", device));
    minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    all.sm = 10 * major + minor;
    all.multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    all.blocks_per_multiprocessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
    all.threads_per_multiprocessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    all.threads_per_block = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    all.shared_bytes_per_block = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    all.shared_bytes_per_multiprocessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    all.compute_mode = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
    all.integrated = attribute(CU_DEVICE_ATTRIBUTE_INTEGRATED) != 0;
    all.mapped_host_memory = attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY) != 0;
    all.unified_addresses = attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING) != 0;
    all.cooperative_launch = attribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) != 0;
    all.compute_preemption = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED) != 0;
    all.vmm = attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0;
    all.vmm_fd = attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) != 0;
    all.vmm_fabric = attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED) != 0;
    all.vmm_rdma = attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0;
    all.ipc_events = attribute(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED) != 0;
    all.memory_operations = attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) != 0;
    all.dma_buf = attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) != 0;
    all.memory_pools = attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) != 0;
    all.multicast = attribute(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED) != 0;
    all.mps = attribute(CU_DEVICE_ATTRIBUTE_MPS_ENABLED) != 0;
    all.memory_sync_domains = std::max(1, attribute(CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT));
    all.rdma_writes_ordering = attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
    return all;
}

std::string bus_id_of(const Driver& driver, int device) {
    char text[64] = "";
    if (driver.DeviceGetPCIBusId(text, sizeof text, device) != CUDA_SUCCESS) return {};
    std::string bus_id = text;
    std::transform(bus_id.begin(), bus_id.end(), bus_id.begin(),
                   [](unsigned char letter) { return char(std::tolower(letter)); });
    return bus_id;
}

std::string DeviceProperties::uuid_text() const {
    std::string text = "GPU-";
    for (size_t i = 0; i < uuid.size(); ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        text += fmt::format("{:02x}", uuid[i]);
    }
    return text;
}

Result<PeerAccess> peer_access(const Driver& driver, int from, int to) {
    PeerAccess access;
    int reachable = 0;
    WEFT_TRY(driver.check(driver.DeviceCanAccessPeer(&reachable, from, to),
                          "find out whether device {} reaches the memory of device {}", from, to));
    access.reachable = reachable != 0;
    int value = 0;
    if (driver.DeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, from, to) == CUDA_SUCCESS)
        access.atomics = value != 0;
    if (driver.DeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, from, to) == CUDA_SUCCESS)
        access.performance_rank = value;
    return access;
}

Result<std::vector<int>> devices_that_reach(const Driver& driver, int device) {
    auto count = device_count(driver);
    if (!count) return count.take_status();
    std::vector<int> devices;
    for (int other = 0; other < *count; ++other) {
        if (other == device) continue;
        auto access = peer_access(driver, other, device);
        if (!access) return access.take_status();
        if (access->reachable) devices.push_back(other);
    }
    return devices;
}

}  // namespace weft::internal::cuda
