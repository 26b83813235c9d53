// arena.hpp: this process's memory that peers may map: one sparse shared segment from which weftMemAlloc takes pages.
// One a process, made at first use, never freed; a forked child makes its own, for its parent's pages are neither to be
// given out again nor freed there. Thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

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

}  // namespace weft
