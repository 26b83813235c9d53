// buffers.hpp: a rank's send and receive buffer: private memory, Weft's, which the ranks of a host can map, or a GPU's.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "pattern.hpp"
#include "placement.hpp"
#include "rank.hpp"

namespace perf {

// Behind each buffer lie this many bytes that a collective must leave alone.
inline constexpr size_t guard_bytes = 64;

// Owns the memory and its registration. Thread-bound to the rank's thread.
class Buffers {
  public:
    struct Layout {
        size_t bytes = 0;   // of each buffer
        size_t offset = 0;  // of the first element behind the start of the memory, in bytes
        bool registered = false;
        bool plain = false;                     // not of Weft's own, though registered
        const Collective* window_of = nullptr;  // null: no one-sided calls
    };
    // Every rank or none gets its buffers: throws Shortage on all if one has no memory for them.
    struct Shortage {
        std::string sentence;  // empty on the ranks that had enough
    };
    Buffers(Rank& rank, const Layout& layout);
    ~Buffers();
    Buffers(const Buffers&) = delete;
    Buffers& operator=(const Buffers&) = delete;

    // The receiving buffer's, which begins where its memory does; null: not lent.
    weftWindow_t window() const { return window_; }
    size_t window_offset(const void* in_receiving) const {
        return size_t(static_cast<const std::byte*>(in_receiving) - static_cast<std::byte*>(memory_[receiving]));
    }

    std::byte* address(Side side) const { return static_cast<std::byte*>(memory_[side]) + layout_.offset; }
    // Writes the period over and over (pattern.hpp) from `offset` on, in bytes.
    void write(Side side, size_t offset, size_t bytes, const Period& period) const;
    // Elements that differ from it; of a GPU's memory they are counted there, or on the host (Gpu::no_kernels()).
    size_t wrong(Side side, size_t offset, size_t bytes, const Period& period, size_t element_bytes) const;

    // Of host memory, what one rank's buffers take, both together; saturates.
    static size_t total_bytes(const Layout& layout);

  private:
    void release();
    bool from_weft() const { return layout_.registered && !layout_.plain; }
    Rank& rank_;
    Layout layout_;
    void* memory_[2] = {};
    void* handles_[2] = {};
    weftWindow_t window_ = nullptr;
    mutable std::vector<std::byte> mirror_;  // on the host, of one of a GPU's that runs no kernels
};

}  // namespace perf
