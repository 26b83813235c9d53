// shared_memory.hpp: an anonymous segment of memory that several processes map: sparse, sealed to its size, and backed
// with pages on request. So memory exhaustion is an error of the request and never a signal at a store.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "src/base/fd.hpp"
#include "src/base/result.hpp"

namespace weft::internal {

class SharedMemory {
  public:
    SharedMemory() = default;
    // A new segment of `bytes` without pages. `name` is visible in /proc/PID/maps only. `mapped`: the length of the
    // prefix that is mapped here; 0: all.
    static Result<SharedMemory> create(const char* name, size_t bytes, size_t mapped = 0);
    // Maps a segment made by create() in any process; rejects a descriptor that is not sealed to its size.
    static Result<SharedMemory> map(Fd fd, size_t mapped = 0);
    // Whether no process can change the segment's size while others map it.
    static Status check_sealed(int fd);
    // A further range of a segment, page-aligned. `whole`, whose descriptor it uses, must outlive it and must not move.
    static Result<SharedMemory> window(const SharedMemory& whole, size_t offset, size_t length);
    SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
    SharedMemory& operator=(SharedMemory&& other) noexcept;
    ~SharedMemory();

    std::byte* data() const { return data_; }
    size_t bytes() const { return bytes_; }            // mapped here
    size_t segment_bytes() const { return segment_; }  // of the whole segment
    int fd() const { return descriptor().number(); }
    // Whether the descriptor is still the segment's: the program may have closed it.
    bool descriptor_intact() const { return descriptor().intact(); }
    uint64_t inode() const { return inode_; }
    bool contains(const void* address, size_t length) const {
        const auto* first = static_cast<const std::byte*>(address);
        return first >= data_ && size_t(first - data_) <= bytes_ && length <= bytes_ - size_t(first - data_);
    }
    // Backs [offset, offset + length) with zeroed pages where there are none, and maps them for this process.
    // Thread-safe.
    Status back(size_t offset, size_t length);
    // For a user that neither backs nor releases pages: the mapping stays.
    void close_descriptor() { fd_.reset(); }
    // Frees the pages that lie wholly inside; they read as zero if backed again.
    void release(size_t offset, size_t length);

  private:
    Status map_range(int fd, size_t offset, size_t length);
    const Fd& descriptor() const { return whole_ ? whole_->fd_ : fd_; }
    Fd fd_;
    const SharedMemory* whole_ = nullptr;  // for a window
    std::byte* data_ = nullptr;
    size_t offset_ = 0;  // position of data_ in the segment
    size_t bytes_ = 0;
    size_t segment_ = 0;
    uint64_t inode_ = 0;
};

size_t page_bytes();

}  // namespace weft::internal
