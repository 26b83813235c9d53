// arena.hpp: this process's memory that peers may map: one sparse shared segment from which weftHostAlloc takes pages.
// One a process, made at first use, never freed; a forked child makes its own, for its parent's pages are neither to be
// given out again nor freed there. It is mapped in one piece; where address space is limited (ulimit -v), in pieces, the
// first of which is small, as memory is asked for. Thread-safe.
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
    // Null if none has been made in this process.
    static Arena* existing();
    static Result<Arena*> get();
    // One more than the offset at which it lies in this process's; 0: it does not.
    static uint64_t place_of(const void* address, size_t bytes);

    Result<void*> allocate(size_t bytes);
    // Fails if `address` was not given out here.
    Status free(void* address);
    bool contains(const void* address, size_t bytes) const { return piece_of(address, bytes) != nullptr; }
    const SharedMemory& memory() const { return memory_; }
    // Where offset 0 lies if everything lies behind it in order; null: it is mapped in pieces.
    std::byte* base() const { return memory_.bytes() == memory_.segment_bytes() ? memory_.data() : nullptr; }

    explicit Arena(SharedMemory memory);

  private:
    struct Piece {
        std::byte* data = nullptr;
        size_t bytes = 0;
        size_t offset = 0;         // in the segment
        SharedMemory window = {};  // of the first: none, it is the arena's own
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
    std::array<Piece, 64> pieces_;  // each but the last ones as large as all before it: enough for any machine
    std::atomic<size_t> piece_count_{0};
    std::mutex mutex_;
    size_t mapped_;
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

}  // namespace weft::internal
