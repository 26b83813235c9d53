// device_plan.hpp: chooses the kernel and the grid of an operation on device memory. The choice depends on agreed facts
// only, so all ranks choose alike. Knows no driver. Reentrant.
#pragma once
#include <map>
#include <span>
#include <string>

#include "src/base/result.hpp"
#include "src/gpu/engine/device_steps.hpp"
#include "src/gpu/kernels/kernels.hpp"
#include "src/planning/call_settings.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

// How many blocks calls get.
struct BlockRules {
    int room = cuda::blocks_max;     // blocks_together() of the ranks' devices
    BlockLimits asked = {};          // by rank 0's options
    size_t packet_bytes = 32 << 20;  // rank 0's WEFT_GPU_PACKET_BYTES
    // The least and the most for calls that ask for these limits; `asked` replaces what is not given.
    BlockLimits limits_for(const BlockLimits& call) const;
    // The longest all-reduce of floating-point numbers by packets, if kernels have so many blocks at most.
    size_t packet_bytes_of(int blocks) const;
};

// The support that the devices of all ranks have in common.
struct CommonSupport {
    uint32_t capabilities = ~uint32_t(0);
    MulticastUse multicast = multicast_off;  // off: there is no staging memory for the switch
    bool fabric = false;                     // fused kernels reach the ranks of all hosts
};

// The facts about devices that all ranks agree on.
struct DeviceLayout {
    int ranks = 1;
    int blocks_max = 1;  // per rank's kernel; the kernels of all ranks of a device fit at once
    std::string algo;    // rank 0's WEFT_ALGO, or the algo of the call
    // The step algorithms, if fused bodies do not support every message.
    std::vector<StepAlgorithm> steps = {};
    std::map<Collective, std::string> excluded = {};  // the algorithms that are not available, and why
    size_t tile_bytes = 0;                            // of step algorithms: rank 0's WEFT_TILE_BYTES
    int hosts = 1;                                    // with several, fused kernels need support.fabric
    AlgoRules rules = {};                             // of `algo`
    uint64_t rings = 0;                               // as Choice::rings
    int threads = cuda::threads_max;                  // per block: rank 0's WEFT_GPU_THREADS
    CommonSupport support = {};
    bool of_call = false;  // see layout_preferring()
    int channels = 0;      // requested by the call; 0: all
    int blocks_min = 1;    // of fused bodies; a kernel of steps has the blocks of its schedule
    BlockRules block_rules = {};
};
// Whether fused kernels serve the ranks.
constexpr bool has_fused_kernels(const DeviceLayout& layout) {
    return layout.ranks <= cuda::ranks_max && (layout.hosts == 1 || layout.support.fabric);
}
// The layout for calls with their own settings: algorithms, channels (0: all) and blocks of the communicator's.
// A missing algorithm is excluded with the reason. ranks: as seen by rank 0; rows: all algorithms.
DeviceLayout layout_preferring(const DeviceLayout& made, const CallPreference& wanted, const Layout& ranks,
                               std::span<const Algorithm> rows);
// Whether a collective needs step machines, and so connections, for some message size. Also true if WEFT_ALGO names a
// step algorithm, because calls may request it.
bool needs_steps(const DeviceLayout& layout, Collective collective);

// The most blocks per rank's kernel for the ranks' devices; 0: the kernels of ranks that share a device do not fit on it together.
int blocks_together(std::span<const DeviceFacts> facts);

struct DevicePlan {
    Operation operation;  // including its choice
    cuda::Body body = cuda::Body::packet_one_shot;
    int blocks = 1;
    int threads = 32;
    int steps = -1;              // index into the layout's; -1: a fused body
    size_t tile_bytes = 0;       // of step algorithms
    std::string algorithm = {};  // the name of the step algorithm

    // Buffers that are not used in place go through staging memory.
    bool staged() const { return body == cuda::Body::peer_two_shot || body == cuda::Body::peer_one_shot; }
    uint32_t fingerprint() const { return weft::internal::fingerprint(operation); }
    // "packet_one_shot, 8 blocks of 512 threads". For step algorithms the algorithm's name comes first.
    std::string text() const;
};

// The operation that kernels execute: a barrier is an all-reduce without data.
Operation served_as(const Operation& operation);
// Fails if WEFT_ALGO leaves no algorithm for device memory.
Result<DevicePlan> plan_on_device(const Operation& operation, const DeviceLayout& layout);

}  // namespace weft::internal
