// device_plan.hpp: which kernel serves an operation on device memory, and with which grid: a function of agreed facts
// alone, so that all ranks launch alike. Knows no driver. Reentrant.
#pragma once
#include <map>
#include <span>
#include <string>

#include "src/base/result.hpp"
#include "src/gpu/engine/device_steps.hpp"
#include "src/gpu/kernels/kernels.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

// What the ranks know alike of their devices.
struct DeviceLayout {
    int ranks = 1;
    int blocks_max = 1;  // of each rank's kernel, so that those of all ranks of a device run at once
    std::string algo;    // rank 0's WEFT_ALGO, or what a call asks for
    // Where no fused body serves every message: what else there is.
    std::vector<StepAlgorithm> steps = {};
    std::map<Collective, std::string> excluded = {};  // and what there is not, and why
    size_t tile_bytes = 0;                            // of steps: rank 0's WEFT_TILE_BYTES
    int hosts = 1;                                    // of several, steps alone serve
    AlgoRules rules = {};                             // of `algo`
    uint64_t rings = 0;                               // as Choice::rings
    int threads = cuda::threads_max;                  // of each block: rank 0's WEFT_GPU_THREADS
    uint32_t capabilities = ~uint32_t(0);             // that all ranks' devices have
    bool of_call = false;                             // see layout_preferring()
    int channels = 0;                                 // that the call asks for; 0: as many as there are
};
// For calls that ask for algorithms themselves: of those that the communicator has, and so many rings; 0: as many as it
// has. What it lacks is excluded with the reason. ranks: as rank 0 sees them; rows: all algorithms.
DeviceLayout layout_preferring(const DeviceLayout& made, const std::string& algo, int channels, const Layout& ranks,
                               std::span<const Algorithm> rows);
// Whether a collective needs step machines, with connections between the ranks, for messages of some size; or may, as
// WEFT_ALGO names some, for which calls may then ask.
bool needs_steps(const DeviceLayout& layout, Collective collective);

// `blocks_max` from what each rank says of its device; 0: the ranks of some device do not find room on it together.
int blocks_together(std::span<const DeviceFacts> facts);

struct DevicePlan {
    Operation operation;  // with its choice
    cuda::Body body = cuda::Body::packet_one_shot;
    int blocks = 1;
    int threads = 32;
    int steps = -1;              // of the layout's
    size_t tile_bytes = 0;       // of steps
    std::string algorithm = {};  // of steps, for people

    // What is not used in place goes through staging memory.
    bool staged() const { return body == cuda::Body::peer_two_shot || body == cuda::Body::peer_one_shot; }
    uint32_t fingerprint() const { return weft::internal::fingerprint(operation); }
    // packet_one_shot, 8 blocks of 512 threads; of steps the algorithm comes first
    std::string text() const;
};

// What kernels carry out: for a barrier an all-reduce of nothing, which all ranks meet in.
Operation served_as(const Operation& operation);
// Fails if WEFT_ALGO leaves nothing that serves device memory.
Result<DevicePlan> plan_on_device(const Operation& operation, const DeviceLayout& layout);

}  // namespace weft::internal
