// flat_buffer.hpp: an owner of zeroed memory that other ranks of the host can map.
#pragma once
#include <cstddef>
#include <utility>

#include "src/base/result.hpp"

namespace weft::internal::train {

class MemorySpace;

// Move-only. No work of the space may use it when it ends.
class FlatBuffer {
  public:
    FlatBuffer() = default;
    static Result<FlatBuffer> allocate(MemorySpace& space, size_t bytes);
    FlatBuffer(FlatBuffer&& other) noexcept { *this = std::move(other); }
    FlatBuffer& operator=(FlatBuffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~FlatBuffer();

    std::byte* data() const { return static_cast<std::byte*>(data_); }
    size_t bytes() const { return bytes_; }

  private:
    void* data_ = nullptr;
    size_t bytes_ = 0;
};

}  // namespace weft::internal::train
