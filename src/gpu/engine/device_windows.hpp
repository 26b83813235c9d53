// device_windows.hpp: windows of device memory: the export of this rank's part, and the addresses of the other parts in
// its kernels (docs/design/rma.md). Thread-bound to the rank.
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

    // Lets the others map our part; `part` says where they find it. Fails if they cannot map it.
    Status open(uint32_t number, void* address, size_t bytes, WindowPart& part);
    // Called when the parts of all ranks are known: whether our kernels can address them. A failure is this rank's own.
    Result<bool> reach(uint32_t number, std::span<const WindowPart> parts);
    // The ranks that reach() or closed() waits for: their part is not mapped here, or they still map ours.
    std::vector<int> missing(uint32_t number) const;
    // Of a window for which reach() was true.
    std::byte* at(uint32_t number, int peer) const { return windows_.at(number).at[size_t(peer)]; }
    uint64_t bytes(uint32_t number, int peer) const { return windows_.at(number).bytes[size_t(peer)]; }
    // Called when no kernel uses the window any more. When closed() is true, no rank maps our part.
    void begin_to_close(uint32_t number);
    bool closed(uint32_t number);

  private:
    struct DeviceWindow {
        std::optional<int> entry;  // of our part
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
