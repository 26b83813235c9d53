#include "src/train/flat_buffer.hpp"

#include "src/train/memory_space.hpp"

namespace weft::internal::train {

Result<FlatBuffer> FlatBuffer::allocate(MemorySpace& space, size_t bytes) {
    FlatBuffer buffer;
    if (bytes == 0) return buffer;
    auto memory = space.allocate(bytes);
    if (!memory) return memory.take_status();
    buffer.data_ = std::move(*memory);
    buffer.bytes_ = bytes;
    buffer.space_ = &space;
    if (space.on_device()) WEFT_TRY(space.zero(buffer.data(), bytes));
    return buffer;
}

Result<FlatBuffer> FlatBuffer::allocate_on_host(MemorySpace& space, size_t bytes) {
    FlatBuffer buffer;
    if (bytes == 0) return buffer;
    auto memory = space.allocate_on_host(bytes);
    if (!memory) return memory.take_status();
    buffer.data_ = std::move(*memory);
    buffer.bytes_ = bytes;
    buffer.space_ = &space;
    return buffer;
}

FlatBuffer::~FlatBuffer() {
    if (data_) (void)space_->synchronize();
}

}  // namespace weft::internal::train
