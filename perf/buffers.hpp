// buffers.hpp: a rank's send and receive buffer: private memory, or Weft's, which the ranks of a host can map.
#pragma once
#include <cstddef>
#include <string>

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
    };
    // Every rank or none gets its buffers: throws Shortage on all if one has no memory for them.
    struct Shortage {
        std::string sentence;  // empty on the ranks that had enough
    };
    Buffers(Rank& rank, const Layout& layout);
    ~Buffers();
    Buffers(const Buffers&) = delete;
    Buffers& operator=(const Buffers&) = delete;

    std::byte* send() const { return static_cast<std::byte*>(memory_[0]) + layout_.offset; }
    std::byte* receive() const { return static_cast<std::byte*>(memory_[1]) + layout_.offset; }

    // What one rank's buffers take, both together; saturates.
    static size_t total_bytes(const Layout& layout);

  private:
    void release();
    Rank& rank_;
    Layout layout_;
    void* memory_[2] = {};
    void* handles_[2] = {};
};

// Memory that this host can still give, in bytes; 0 if it does not say.
size_t available_memory();

}  // namespace perf
