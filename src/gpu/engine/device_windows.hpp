// device_windows.hpp: windows of device memory: what the others are told of this rank's part, and where its kernels find
// theirs (docs/design/rma.md). Thread-bound to the rank.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "src/gpu/domain/buffer_registry.hpp"
#include "src/rma/one_sided.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

class DeviceWindows {
  public:
    DeviceWindows(const Segment& group, int rank, cuda::BufferRegistry& registry)
        : segment_(&group), rank_(rank), registry_(&registry) {}

    // From here on others may map our part, in which they find it; fails if they cannot.
    Status open(uint32_t number, void* address, size_t bytes, WindowPart& part);
    // All have told theirs: whether it is known where our kernels find them. A failure is this rank's own.
    Result<bool> reach(uint32_t number, std::span<const WindowPart> parts);
    // Ranks that reach() or closed() waits for: whose part is not mapped here, or who maps ours.
    std::vector<int> missing(uint32_t number) const;
    // Of a window that is reached.
    std::byte* at(uint32_t number, int peer) const { return windows_.at(number).at[size_t(peer)]; }
    uint64_t bytes(uint32_t number, int peer) const { return windows_.at(number).bytes[size_t(peer)]; }
    // Nobody's kernels use it any more. From closed() on nobody maps our part.
    void begin_to_close(uint32_t number);
    bool closed(uint32_t number);

  private:
    struct DeviceWindow {
        std::optional<int> entry;  // of ours
        std::vector<std::byte*> at = {};
        std::vector<uint64_t> bytes = {};
        std::vector<int> unreached = {};  // ranks
    };

    const Segment* segment_;
    int rank_;
    cuda::BufferRegistry* registry_;
    std::map<uint32_t, DeviceWindow> windows_;
};

}  // namespace weft::internal
