// registered_buffers.hpp: the buffers that the user registered on a communicator (weftCommRegister).
// Buffers in host memory are only recorded, because their address tells whether peers can map them.
#pragma once
#include <list>

#include "src/comm/rank_context.hpp"

namespace weft::internal {

// Thread-bound to the rank.
class RegisteredBuffers {
  public:
    explicit RegisteredBuffers(RankContext& context) : context_(context) {}

    // Returns the handle.
    void* add(void* address, size_t bytes);
    Status remove(const void* handle);

  private:
    RankContext& context_;
    std::list<int> entries_;  // the entry of a buffer in device memory, else GpuBuffers::no_entry
};

}  // namespace weft::internal
