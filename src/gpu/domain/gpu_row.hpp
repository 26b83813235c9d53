// gpu_row.hpp: a rank's GPU in its row of the segment (segment/rank_row.hpp). Plain data.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace weft::internal {

// The first access path that ranks try for each other's device memory.
enum class GpuPath : int32_t { fastest, descriptors, host, copies };
inline constexpr std::string_view gpu_path_names[] = {"", "descriptors", "host", "copies"};

// The NVLink domain of a GPU whose memory can be exported to its other hosts.
struct FabricFacts {
    uint8_t cluster[16];
    uint32_t clique;
    uint32_t exports;  // 0: none, and the rest is 0
    bool same_domain(const FabricFacts& other) const { return exports != 0 && memcmp(this, &other, sizeof *this) == 0; }
};

// A rank's report about its GPU when it joins.
struct DeviceFacts {
    // refused: Weft does not use the rank's GPU, and the rank's log has the reason. With `copied` no kernel of ours runs
    // on the GPU, so its memory is staged through host memory.
    enum Use : uint32_t { none, usable, refused, copied };
    Use use;
    int32_t ordinal;          // in its process
    uint8_t uuid[16];         // ranks with equal uuids share the GPU, even if their host names differ
    int32_t resident_blocks;  // limit over all our kernels that run on the GPU at once
    char bus_id[20];          // PCI address: 0000:1b:00.0
    uint32_t capabilities;    // of the kernels (gpu/kernels/capability.def)
    FabricFacts fabric;
};

// The word that a stream awaits in a call by copy engines (docs/design/gpu-copies.md). Streams see 64 bits: the wait ends
// when either half is set.
struct alignas(8) StreamWord {
    std::atomic<uint32_t> arrived;   // written by streams: 1 by the peer's, 0 by the rank's own after its wait
    std::atomic<uint32_t> released;  // 1: no wait any more; written by the rank's service thread after an abort
};
inline constexpr int copying_ranks_max = 16;  // ranks of a call by copy engines

// A rank's buffer that all ranks try to put behind the switch (gpu/domain/multicast/switched_buffers.hpp).
struct SwitchSlot {
    std::atomic<uint64_t> state;       // the buffer's number << 8 | the last step that the rank has ended (release)
    std::atomic<uint64_t> bytes;       // of the piece of memory around the buffer
    std::atomic<uint64_t> objects[6];  // of the first rank: words of a MulticastEntry
};
inline constexpr int switch_slots = 32;

struct GpuRow {
    DeviceFacts facts;
    SwitchSlot switched[switch_slots];
    // By series of numbers: the rank takes no further slot for a number up to this one (release).
    std::atomic<uint64_t> switch_passed[2];
    // By peer: its data may be read; it has read this rank's data.
    StreamWord ready[copying_ranks_max], done[copying_ranks_max];
    // 1: none of its kernels runs any more and it has unmapped its peers' device memory (release). For a rank of another
    // host, as of its leader's last report.
    std::atomic<uint32_t> left;
};

}  // namespace weft::internal
