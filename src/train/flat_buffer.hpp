// flat_buffer.hpp: an owner of zeroed memory that other ranks of the host can map.
#pragma once
#include <cstddef>
#include <utility>

#include "src/base/result.hpp"

namespace weft::internal::train {

class MemorySpace;

// Move-only. Waits for the space's work before it frees memory of a device. The space must outlive it.
class FlatBuffer {
  public:
    FlatBuffer() = default;
    static Result<FlatBuffer> allocate(MemorySpace& space, size_t bytes);
    FlatBuffer(FlatBuffer&& other) noexcept { *this = std::move(other); }
    FlatBuffer& operator=(FlatBuffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        std::swap(space_, other.space_);
        return *this;
    }
    ~FlatBuffer();

    std::byte* data() const { return static_cast<std::byte*>(data_); }
    size_t bytes() const { return bytes_; }

  private:
    void* data_ = nullptr;
    size_t bytes_ = 0;
    MemorySpace* space_ = nullptr;
};

}  // namespace weft::internal::train
