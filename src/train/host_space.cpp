// host_space.cpp: memory of the host (memory_space.hpp).
#include <cstring>

#include "src/base/arithmetic.hpp"
#include "src/kernels/cpu_kernels.hpp"
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
    Status add(void* to, const void* from, size_t count, weftDataType_t type) override {
        const void* const sources[] = {to, from};
        ReduceJob job = {};
        job.destinations = &to;
        job.destination_count = 1;
        job.sources = sources;
        job.source_count = 2;
        job.count = count;
        job.stores = Stores::ordinary;
        if (count > 0) cpu_kernels().reduce[type][weftSum](job);
        return ok();
    }
    Status scale(void* memory, size_t count, weftDataType_t type, double factor) override {
        return with_datatype(type, [&](auto constant) {
            using Numbers = Arithmetic<decltype(constant)::value>;
            const auto scalar = Numbers::round(typename Numbers::Accumulator(factor));
            if (count > 0) cpu_kernels().scale[type](memory, memory, count, &scalar);
            return ok();
        });
    }
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
