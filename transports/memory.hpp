// memory.hpp: memory that a transport reads and writes by itself, such as a NIC does.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::internal {

enum class RangeKind : uint8_t { slots, user, pinned, device };

// The range that a caller registers. The caller keeps it allocated until the registration has ended.
struct MemoryRange {
    std::byte* data = nullptr;
    size_t bytes = 0;
    RangeKind kind = RangeKind::user;
    int device = -1;              // of RangeKind::device
    int dma_buf = -1;             // descriptor of the dma-buf with this memory; -1: none. The caller closes it
    uint64_t dma_buf_offset = 0;  // of `data` in the dma-buf
    // Of RangeKind::device: kernels see what a NIC has written only after a flush by that NIC.
    bool needs_flush = true;
};

// A registered range. Its owner ends it after the last transfer, and before it frees the memory.
class RegisteredMemory {
  public:
    explicit RegisteredMemory(const MemoryRange& range) : range_(range) {}
    virtual ~RegisteredMemory() = default;
    const MemoryRange& range() const { return range_; }
    bool holds(const std::byte* data, size_t bytes) const {
        return data >= range_.data && bytes <= range_.bytes && size_t(data - range_.data) <= range_.bytes - bytes;
    }
    // The bytes by which a peer addresses the range in put and get; empty: the transport has no one-sided access.
    virtual std::vector<std::byte> key() const { return {}; }
    // After a failure: no transfer reads or writes the range from now on; those under way may fail. The object stays.
    virtual void revoke() {}

  private:
    MemoryRange range_;
};

// A peer's registered range, as Sender::attach() makes it from the peer's key.
class RemoteMemory {
  public:
    virtual ~RemoteMemory() = default;
};

}  // namespace weft::internal
