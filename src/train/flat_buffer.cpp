#include "src/train/flat_buffer.hpp"

#include "src/train/peers.hpp"

namespace weft::internal::train {

Result<FlatBuffer> FlatBuffer::allocate(size_t bytes) {
    FlatBuffer buffer;
    if (bytes == 0) return buffer;
    WEFT_TRY(called(weftHostAlloc(&buffer.data_, bytes)));
    buffer.bytes_ = bytes;
    return buffer;
}

FlatBuffer::~FlatBuffer() { (void)weftMemFree(data_); }

}  // namespace weft::internal::train
