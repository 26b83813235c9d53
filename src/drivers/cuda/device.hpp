// device.hpp: the properties of a GPU, as plain values.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "src/drivers/cuda/driver.hpp"

namespace weft::internal::cuda {

struct DeviceProperties {
    int device = 0;  // CUDA's ordinal among the visible devices
    std::string name;
    std::array<uint8_t, 16> uuid{};
    std::string bus_id;  // 0000:1b:00.0, lower case, as in /sys
    size_t memory_bytes = 0;
    int sm = 0;  // compute capability: 90 is 9.0
    int multiprocessors = 0;
    int blocks_per_multiprocessor = 0;
    int threads_per_multiprocessor = 0;
    int threads_per_block = 0;
    int shared_bytes_per_block = 0;  // the opt-in maximum
    int shared_bytes_per_multiprocessor = 0;
    int compute_mode = 0;  // CU_COMPUTEMODE_*: 0 default, 2 prohibited, 3 one process alone
    bool integrated = false;
    bool mapped_host_memory = false, unified_addresses = false;
    bool cooperative_launch = false;
    bool compute_preemption = false;
    bool vmm = false;                // virtual memory management: VmmMemory
    bool vmm_fd = false;             // its memory can be exported as a file descriptor
    bool vmm_fabric = false;         // its memory can be exported to other hosts of an NVLink domain
    bool vmm_rdma = false;           // its memory can be registered with network cards
    bool ipc_events = false;         // events can be shared between processes
    bool memory_operations = false;  // 64-bit stream memory operations
    bool dma_buf = false;
    bool memory_pools = false;
    bool multicast = false;
    bool mps = false;              // managed by NVIDIA's multi-process service
    int memory_sync_domains = 1;   // more than one from sm_90 on
    int rdma_writes_ordering = 0;  // CU_GPU_DIRECT_RDMA_WRITES_ORDERING_*

    std::string uuid_text() const;  // GPU-xxxxxxxx-xxxx-..., as in nvidia-smi
};

Result<int> device_count(const Driver& driver);
Result<DeviceProperties> describe_device(const Driver& driver, int device);
// As DeviceProperties::bus_id; empty: unknown.
std::string bus_id_of(const Driver& driver, int device);

// How one device accesses another device's memory.
struct PeerAccess {
    bool reachable = false;  // by loads and stores
    bool atomics = false;
    int performance_rank = 0;  // lower is better
};
Result<PeerAccess> peer_access(const Driver& driver, int from, int to);
// The other devices that can access the memory of `device` if peer access is enabled.
Result<std::vector<int>> devices_that_reach(const Driver& driver, int device);

}  // namespace weft::internal::cuda
