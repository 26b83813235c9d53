#include "src/train/sharding/buffer_pool.hpp"

namespace weft::internal::train {

Status BufferPool::reserve(int buffers, bool discarded) {
    for (int i = 0; i < buffers; ++i) {
        auto buffer =
            pooled_ ? FlatBuffer::allocate_pooled(*space_, bytes_each_) : FlatBuffer::allocate(*space_, bytes_each_);
        if (!buffer) return buffer.take_status();
        if (discarded) buffer->discard();
        free_.push_back(std::move(*buffer));
    }
    return ok();
}

void BufferPool::discard() {
    for (FlatBuffer& buffer : free_) buffer.discard();
}

Result<FlatBuffer> BufferPool::take() {
    if (free_.empty()) WEFT_TRY(reserve(1));
    FlatBuffer buffer = std::move(free_.back());
    free_.pop_back();
    return buffer;
}

void BufferPool::give_back(FlatBuffer buffer) { free_.push_back(std::move(buffer)); }

}  // namespace weft::internal::train
