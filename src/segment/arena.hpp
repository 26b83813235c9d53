// arena.hpp: this process's memory that peers may map: one sparse shared segment from which weftHostAlloc takes pages.
// A process has one arena, made at first use and never freed. A forked child makes its own and never touches its
// parent's pages. The arena is mapped as one piece. Under an address-space limit (ulimit -v) it is mapped piece by
// piece as memory is requested. Thread-safe.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "src/base/shared_memory.hpp"

namespace weft::internal {

class Arena {
  public:
    // Null if this process has no arena yet.
    static Arena* existing();
    static Result<Arena*> get();
    // One more than the offset of `address` in this process's arena; 0: the address is not in the arena.
    static uint64_t place_of(const void* address, size_t bytes);

    Result<void*> allocate(size_t bytes);
    // Fails if allocate() did not return `address`.
    Status free(void* address);
    bool contains(const void* address, size_t bytes) const { return piece_of(address, bytes) != nullptr; }
    const SharedMemory& memory() const { return memory_; }
    // The address of offset 0 if the arena is mapped as one piece; null otherwise.
    std::byte* base() const { return memory_.bytes() == memory_.segment_bytes() ? memory_.data() : nullptr; }

    explicit Arena(SharedMemory memory);

  private:
    struct Piece {
        std::byte* data = nullptr;
        size_t bytes = 0;
        size_t offset = 0;         // in the segment
        SharedMemory window = {};  // none in the first piece: that is memory_
        bool contains(const void* address, size_t length) const {
            const auto* first = static_cast<const std::byte*>(address);
            return first >= data && size_t(first - data) <= bytes && length <= bytes - size_t(first - data);
        }
        SharedMemory& memory(SharedMemory& first) { return offset == 0 ? first : window; }
    };
    const Piece* piece_of(const void* address, size_t bytes) const;
    Piece& piece_at(size_t offset);
    Status grow(size_t length);

    SharedMemory memory_;
    std::array<Piece, 64> pieces_;  // each but the last ones is as large as all before it: 64 suffice for any machine
    std::atomic<size_t> piece_count_{0};
    std::mutex mutex_;
    size_t mapped_;
    std::map<size_t, size_t> free_;  // offset -> bytes; adjacent ranges are merged
    std::map<size_t, size_t> used_;
};

// Owns an allocation of the process's arena and frees it. A forked child does not free it: the arena is its parent's.
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

}  // namespace weft::internal
