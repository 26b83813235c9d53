// registered_buffers.hpp: the buffers that the user registered on a communicator (weftCommRegister).
// Peers of the host find out from the address of a buffer in host memory whether they can map it. A network transport
// gets it registered.
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
    // `calls`: some of this rank's calls may be in progress.
    Status remove(const void* handle, bool calls);

  private:
    struct Buffer {
        int entry;                           // in device memory; else GpuBuffers::no_entry
        const RegisteredMemory* registered;  // with the network transport; null: not
    };
    RankContext& context_;
    std::list<Buffer> buffers_;
};

}  // namespace weft::internal
