// staging.hpp: host copies of boxes whose memory lies on a device.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "src/base/result.hpp"
#include "src/train/memory_space.hpp"
#include "weft/types.h"

namespace weft::internal::train {

// The boxes of one call. Thread-bound.
class Staging {
  public:
    // reads: host copies get the elements.
    explicit Staging(bool reads) : reads_(reads) {}
    // Host memory for the bytes at `memory`, read after the work that the caller's stream has now.
    Result<void*> add(void* memory, size_t bytes, int device, weftStream_t callers);
    // After the last add(): the elements are there.
    Status finish();
    // Copies the host memory back after the work that the callers' streams have now, and waits for it.
    Status write_back();

  private:
    struct Copy {
        MemorySpace* space;
        void* memory;
        std::unique_ptr<std::byte[]> host;
        size_t bytes;
        weftStream_t callers;
    };
    Result<MemorySpace*> space_of(int device);

    bool reads_;
    std::map<int, std::unique_ptr<MemorySpace>> spaces_;  // by devices
    std::vector<Copy> copies_;
};

}  // namespace weft::internal::train
