// buffers.hpp: the send and receive buffer of a rank.
// The memory is private, from Weft's allocator (so that the ranks of a host can map it), or a GPU's.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "pattern.hpp"
#include "placement.hpp"
#include "rank.hpp"

namespace perf {

// The guard bytes behind each buffer, which a collective must not change.
inline constexpr size_t guard_bytes = 64;

// Owns the memory and its registration. Thread-bound to the rank's thread.
class Buffers {
  public:
    struct Layout {
        size_t bytes = 0;   // of each buffer
        size_t offset = 0;  // bytes from the start of the memory to the first element
        Registered registered = Registered::no;
        bool plain = false;                     // registered, but not from Weft's allocator
        const Collective* window_of = nullptr;  // null: no one-sided calls
    };
    // Thrown on all ranks if one rank has no memory for its buffers.
    struct Shortage {
        std::string sentence;  // empty on the ranks that had enough memory
    };
    Buffers(Rank& rank, const Layout& layout);
    ~Buffers();
    Buffers(const Buffers&) = delete;
    Buffers& operator=(const Buffers&) = delete;

    // The window over the receive memory, from its start; null without one-sided calls.
    weftWindow_t window() const { return window_; }
    size_t window_offset(const void* in_receiving) const {
        return size_t(static_cast<const std::byte*>(in_receiving) - static_cast<std::byte*>(memory_[receiving]));
    }

    std::byte* address(Side side) const { return static_cast<std::byte*>(memory_[side]) + layout_.offset; }
    // Writes the repeated period (pattern.hpp) from byte `offset` on.
    void write(Side side, size_t offset, size_t bytes, const Period& period) const;
    // The number of elements that differ from the period. A GPU's memory is compared there, or on the host if
    // no_kernels().
    size_t wrong(Side side, size_t offset, size_t bytes, const Period& period, size_t element_bytes) const;

    // The host memory that both buffers of one rank take; saturates.
    static size_t total_bytes(const Layout& layout);

  private:
    void release();
    bool from_weft() const { return layout_.registered != Registered::no && !layout_.plain; }
    Rank& rank_;
    Layout layout_;
    void* memory_[2] = {};
    void* handles_[2] = {};
    weftWindow_t symmetric_[2] = {};
    weftWindow_t window_ = nullptr;
    mutable std::vector<std::byte> mirror_;  // host copy of a buffer of a GPU that runs no kernels
};

}  // namespace perf
