// inventory.hpp: lists drivers and devices for output, as plain values. It works in builds without CUDA too.
#pragma once
#include <string>
#include <vector>

namespace weft::internal {

struct GpuInventory {
    int device = 0;
    std::string name, uuid, bus_id;
    int sm = 0;  // 90: compute capability 9.0
    int multiprocessors = 0;
    size_t memory_bytes = 0;
    std::string compute_mode;           // "default", "exclusive process", "prohibited"
    std::vector<std::string> features;  // "vmm", "fd export", "ipc events", ...
    std::vector<int> peers;             // devices whose memory this device can access
    int nvlinks = 0;                    // active NVLinks that NVML reports
    std::string nvlink_ends;            // "12 to switches", "4 to 0000:1b:00.0"; empty: unknown
    std::string nvlink_domain;          // of several hosts: "cluster abab..., clique 7"; empty: none or unknown
    std::string problem;                // why the rest is unknown; usually empty
};

struct DriverInventory {
    std::string cuda_library;  // the opened file
    std::string cuda_version;  // the newest CUDA version that the driver supports: 13.0
    std::string cuda_why_not;  // why there is no driver; empty: there is one
    std::string code_why_not;  // why the driver rejects device code of this build's toolkit; empty: it accepts it
    std::string nvml_version;  // the driver's own version: 580.65.06
    std::string nvml_why_not;
    std::vector<GpuInventory> gpus;
};
// Opens the drivers, but makes no context.
DriverInventory describe_drivers();

}  // namespace weft::internal
