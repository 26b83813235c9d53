// buffer_pool.hpp: memory that units take in turn. All its buffers have one size.
#pragma once
#include <cstddef>
#include <vector>

#include "src/base/result.hpp"
#include "src/train/flat_buffer.hpp"

namespace weft::internal::train {

// Its space must outlive it. Thread-bound.
class BufferPool {
  public:
    // pooled: as FlatBuffer::allocate_pooled().
    BufferPool(MemorySpace& space, size_t bytes_each, bool pooled = false)
        : space_(&space), bytes_each_(bytes_each), pooled_(pooled) {}

    // Before the communicator's first call, so that peers can map the memory. With `discarded` they get pages later.
    Status reserve(int buffers, bool discarded = false);
    // The buffers that are free.
    void discard();
    bool has_free() const { return !free_.empty(); }
    // A free buffer, with any contents or discarded, or a new one.
    Result<FlatBuffer> take();
    void give_back(FlatBuffer buffer);

  private:
    MemorySpace* space_;
    size_t bytes_each_;
    bool pooled_;
    std::vector<FlatBuffer> free_;
};

}  // namespace weft::internal::train
