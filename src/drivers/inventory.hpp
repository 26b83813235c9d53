// inventory.hpp: which drivers and devices there are, for people: plain values, also where Weft is built without CUDA.
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
    std::vector<int> peers;             // devices whose memory it reaches
    int nvlinks = 0;                    // active ones, as far as NVML tells
    std::string nvlink_ends;            // "12 to switches", "4 to 0000:1b:00.0"; empty: unknown
    std::string problem;                // why the rest is not known; empty as a rule
};

struct DriverInventory {
    std::string cuda_library;  // what was opened
    std::string cuda_version;  // of CUDA that the driver serves: 13.0
    std::string cuda_why_not;  // why there is none; empty if there is one
    std::string code_why_not;  // why the driver takes no device code of this build's toolkit; empty if it does
    std::string nvml_version;  // the driver's own: 580.65.06
    std::string nvml_why_not;
    std::vector<GpuInventory> gpus;
};
// Opens the drivers. No context is made.
DriverInventory describe_drivers();

}  // namespace weft::internal
