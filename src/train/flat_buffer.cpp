#include "src/train/flat_buffer.hpp"

#include "src/train/memory_space.hpp"

namespace weft::internal::train {

Result<FlatBuffer> FlatBuffer::own(MemorySpace& space, size_t bytes, Result<std::shared_ptr<void>> memory) {
    if (!memory) return memory.take_status();
    FlatBuffer buffer;
    buffer.data_ = std::move(*memory);
    buffer.bytes_ = bytes;
    buffer.space_ = &space;
    space.held().add(bytes);
    return buffer;
}

Result<FlatBuffer> FlatBuffer::allocate(MemorySpace& space, size_t bytes) {
    if (bytes == 0) return FlatBuffer();
    auto buffer = own(space, bytes, space.allocate(bytes));
    if (buffer && space.on_device()) WEFT_TRY(space.zero(buffer->data(), bytes));
    return buffer;
}

Result<FlatBuffer> FlatBuffer::allocate_pooled(MemorySpace& space, size_t bytes) {
    if (bytes == 0) return FlatBuffer();
    return own(space, bytes, space.allocate(bytes, true));
}

Result<FlatBuffer> FlatBuffer::allocate_on_host(MemorySpace& space, size_t bytes) {
    if (bytes == 0) return FlatBuffer();
    return own(space, bytes, space.allocate_on_host(bytes));
}

Status FlatBuffer::grow(MemorySpace& space, size_t bytes) {
    if (bytes_ >= bytes) return ok();
    auto larger = allocate(space, bytes);
    if (!larger) return larger.take_status();
    *this = std::move(*larger);
    return ok();
}

FlatBuffer::~FlatBuffer() {
    if (!data_) return;  // none, or in the pool
    (void)space_->synchronize();
    space_->held().remove(held());
}

void FlatBuffer::discard() {
    if (!data_ || discarded_ || space_->held().keeps_pages() || !space_->discard(data_, bytes_)) return;
    discarded_ = true;
    space_->held().remove(bytes_);
}

Status FlatBuffer::back() {
    if (!discarded_) return ok();
    WEFT_TRY(space_->back(data_, bytes_));
    discarded_ = false;
    space_->held().add(bytes_);
    return ok();
}

}  // namespace weft::internal::train
