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
    space.held().add(bytes);
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
    space.held().add(bytes);
    return buffer;
}

FlatBuffer::~FlatBuffer() {
    if (!data_) return;
    (void)space_->synchronize();
    space_->held().remove(held());
}

void FlatBuffer::discard() {
    if (!data_ || discarded_ || space_->held().keeps_pages() || !space_->discard(data_.get(), bytes_)) return;
    discarded_ = true;
    space_->held().remove(bytes_);
}

Status FlatBuffer::back() {
    if (!discarded_) return ok();
    WEFT_TRY(space_->back(data_.get(), bytes_));
    discarded_ = false;
    space_->held().add(bytes_);
    return ok();
}

}  // namespace weft::internal::train
