// flat_buffer.hpp: an owner of zeroed memory: such that other ranks of the host can map, or pinned host memory.
#pragma once
#include <cstddef>
#include <memory>
#include <utility>

#include "src/base/result.hpp"

namespace weft::internal::train {

class MemorySpace;

// Move-only. Waits for the space's work before it frees the memory. The space must outlive it.
class FlatBuffer {
  public:
    FlatBuffer() = default;
    static Result<FlatBuffer> allocate(MemorySpace& space, size_t bytes);
    // Memory that discard() gives back on a device, too: to its pool, so that other ranks cannot map it. Its address changes
    // then. Not zeroed there.
    static Result<FlatBuffer> allocate_pooled(MemorySpace& space, size_t bytes);
    // Host memory for copies of the space. Other ranks cannot map it if the space is a device's.
    static Result<FlatBuffer> allocate_on_host(MemorySpace& space, size_t bytes);
    // At least so many bytes of the space: larger memory replaces smaller one, and is zeroed.
    Status grow(MemorySpace& space, size_t bytes);
    FlatBuffer(FlatBuffer&& other) noexcept { *this = std::move(other); }
    FlatBuffer& operator=(FlatBuffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        std::swap(space_, other.space_);
        std::swap(discarded_, other.discarded_);
        return *this;
    }
    ~FlatBuffer();

    std::byte* data() const { return static_cast<std::byte*>(data_.get()); }
    size_t bytes() const { return bytes_; }

    // Gives the pages back where the space can; the address stays, but not that of pooled memory. The next user calls
    // back() before.
    void discard();
    // Discarded memory has no contents: it is zeros after back() on the host.
    bool discarded() const { return discarded_; }
    Status back();
    // Bytes with pages.
    size_t held() const { return discarded_ ? 0 : bytes_; }

  private:
    static Result<FlatBuffer> own(MemorySpace& space, size_t bytes, Result<std::shared_ptr<void>> memory);

    std::shared_ptr<void> data_;
    size_t bytes_ = 0;
    MemorySpace* space_ = nullptr;
    bool discarded_ = false;
};

}  // namespace weft::internal::train
