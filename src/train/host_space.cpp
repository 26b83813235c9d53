// host_space.cpp: memory of the host (memory_space.hpp).
#include <cstring>

#include "src/train/memory_space.hpp"
#include "src/train/peers.hpp"

namespace weft::internal::train {

namespace {

class HostSpace : public MemorySpace {
  public:
    bool on_device() const override { return false; }
    weftStream_t stream() const override { return nullptr; }
    // Parameters without elements have no memory: memcpy and memset do not take a null pointer.
    Status copy(void* to, const void* from, size_t bytes) override {
        if (bytes > 0) memcpy(to, from, bytes);
        return ok();
    }
    Status zero(void* memory, size_t bytes) override {
        if (bytes > 0) memset(memory, 0, bytes);
        return ok();
    }
    Status check(const char*, weftStream_t) const override { return ok(); }
    Status follow(weftStream_t) override { return ok(); }
    Status lead(weftStream_t) override { return ok(); }
    Status synchronize() override { return ok(); }
    Result<void*> allocate(size_t bytes) override {
        void* memory = nullptr;
        WEFT_TRY(called(weftHostAlloc(&memory, bytes)));
        return memory;
    }
};

}  // namespace

std::unique_ptr<MemorySpace> host_space() { return std::make_unique<HostSpace>(); }

}  // namespace weft::internal::train
