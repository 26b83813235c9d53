#include "src/train/flat_buffer.hpp"

#include "src/train/memory_space.hpp"
#include "weft/weft.h"

namespace weft::internal::train {

Result<FlatBuffer> FlatBuffer::allocate(MemorySpace& space, size_t bytes) {
    FlatBuffer buffer;
    if (bytes == 0) return buffer;
    auto memory = space.allocate(bytes);
    if (!memory) return memory.take_status();
    buffer.data_ = *memory;
    buffer.bytes_ = bytes;
    buffer.space_ = &space;
    if (space.on_device()) WEFT_TRY(space.zero(buffer.data_, bytes));
    return buffer;
}

FlatBuffer::~FlatBuffer() {
    if (!data_) return;
    (void)space_->synchronize();
    (void)weftMemFree(data_);
}

}  // namespace weft::internal::train
