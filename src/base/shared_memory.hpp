// shared_memory.hpp: a nameless segment of memory that several processes map: sparse, sealed to its size, backed with
// pages on request, so that running out of memory is an error at the request and never a signal at a store.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "src/base/fd.hpp"
#include "src/base/result.hpp"

namespace weft {

class SharedMemory {
  public:
    SharedMemory() = default;
    // A new segment of `bytes` of address space, no page of it backed. `name` shows in /proc/PID/maps only.
    static Result<SharedMemory> create(const char* name, size_t bytes);
    // Maps a segment made by create() in any process; refuses a descriptor that is not sealed to its size.
    static Result<SharedMemory> map(Fd fd);
    SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
    SharedMemory& operator=(SharedMemory&& other) noexcept;
    ~SharedMemory();

    std::byte* data() const { return data_; }
    size_t bytes() const { return bytes_; }
    int fd() const { return fd_.number(); }
    uint64_t inode() const { return inode_; }
    bool contains(const void* address, size_t length) const {
        const auto* first = static_cast<const std::byte*>(address);
        return first >= data_ && size_t(first - data_) <= bytes_ && length <= bytes_ - size_t(first - data_);
    }
    // Backs [offset, offset + length) with zeroed pages where it has none, and maps them for this process. Thread-safe.
    Status back(size_t offset, size_t length);
    // For who neither backs nor releases: the mapping stays.
    void close_descriptor() { fd_.reset(); }
    // Gives the pages that lie wholly inside back; they read as zero if backed again.
    void release(size_t offset, size_t length);

  private:
    Fd fd_;
    std::byte* data_ = nullptr;
    size_t bytes_ = 0;
    uint64_t inode_ = 0;
};

size_t page_bytes();

}  // namespace weft
