// arena.hpp: this process's memory that peers may map: one sparse shared segment from which weftMemAlloc takes pages.
// One a process, made at first use, never freed; a forked child makes its own, for its parent's pages are neither to be
// given out again nor freed there. Thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "src/base/shared_memory.hpp"

namespace weft {

class Arena {
  public:
    // Null if none has been made in this process.
    static Arena* existing();
    static Result<Arena*> get();
    // One more than the offset at which it lies in this process's; 0: it does not.
    static uint64_t place_of(const void* address, size_t bytes);

    Result<void*> allocate(size_t bytes);
    // Fails if `address` was not given out here.
    Status free(void* address);
    bool contains(const void* address, size_t bytes) const { return memory_.contains(address, bytes); }
    const SharedMemory& memory() const { return memory_; }

    explicit Arena(SharedMemory memory);

  private:
    SharedMemory memory_;
    std::mutex mutex_;
    std::map<size_t, size_t> free_;  // offset -> bytes; neighbours merged
    std::map<size_t, size_t> used_;
};

// Some of the process's arena, given back with this; not by a child after fork, whose it is not.
class ArenaMemory {
  public:
    ArenaMemory() = default;
    static Result<ArenaMemory> allocate(size_t bytes);
    ArenaMemory(ArenaMemory&& other) noexcept { swap(other); }
    ArenaMemory& operator=(ArenaMemory other) noexcept { return swap(other), *this; }
    ~ArenaMemory();
    std::byte* data() const { return data_; }
    size_t bytes() const { return bytes_; }

  private:
    void swap(ArenaMemory& other) noexcept {
        std::swap(arena_, other.arena_);
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
    }
    Arena* arena_ = nullptr;
    std::byte* data_ = nullptr;
    size_t bytes_ = 0;
};

}  // namespace weft
