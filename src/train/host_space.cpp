// host_space.cpp: memory of the host (memory_space.hpp).
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "src/base/arithmetic.hpp"
#include "src/base/datatype.hpp"
#include "src/kernels/cpu_kernels.hpp"
#include "src/train/hooks/codecs.hpp"
#include "src/train/memory_space.hpp"
#include "src/train/peers.hpp"

namespace weft::internal::train {

namespace {

// Of kernels since 5.14; older ones refuse it.
constexpr int populate_for_writing = 23;

// Of float64: rounded to fp32 first, as PyTorch does.
void narrow(void* small, weftDataType_t type, const double* large, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        const float number = float(large[i]);
        cpu_kernels().narrow[type](static_cast<uint16_t*>(small) + i, &number, 1);
    }
}
void widen(double* large, weftDataType_t type, const void* small, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        float number = 0;
        cpu_kernels().widen[type](&number, static_cast<const uint16_t*>(small) + i, 1);
        large[i] = double(number);
    }
}

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
    Status prepare_arithmetic() override { return ok(); }
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
    Status encode(const WholeNumbers& form, const float* numbers, size_t count, std::byte* message) override {
        form.with_codec([&](const Codec& codec) { codec.encode({numbers, count}, message); });
        return ok();
    }
    Status decode(const WholeNumbers& form, const std::byte* message, size_t count, float* numbers) override {
        form.with_codec([&](const Codec& codec) { codec.decode(message, {numbers, count}); });
        return ok();
    }
    // A product with the reciprocal would have other bits than PyTorch's quotient.
    Status scale(void* memory, size_t count, weftDataType_t type, double factor, double divisor) override {
        return with_datatype(type, [&](auto constant) {
            using Numbers = Arithmetic<decltype(constant)::value>;
            auto* const elements = static_cast<typename Numbers::Element*>(memory);
            const auto times = typename Numbers::Accumulator(factor), by = typename Numbers::Accumulator(divisor);
            if (divisor == 1)
                for (size_t i = 0; i < count; ++i) elements[i] = Numbers::round(Numbers::widen(elements[i]) * times);
            else
                for (size_t i = 0; i < count; ++i) elements[i] = Numbers::round(Numbers::widen(elements[i]) / by);
            return ok();
        });
    }
    Status convert(void* to, weftDataType_t to_type, const void* from, weftDataType_t from_type,
                   size_t count) override {
        if (from_type == weftFloat64)
            narrow(to, to_type, static_cast<const double*>(from), count);
        else if (to_type == weftFloat64)
            widen(static_cast<double*>(to), from_type, from, count);
        else if (from_type == weftFloat32)
            cpu_kernels().narrow[to_type](to, from, count);
        else
            cpu_kernels().widen[from_type](to, from, count);
        return ok();
    }
    Status follow(weftStream_t) override { return ok(); }
    Status lead(weftStream_t) override { return ok(); }
    Status mark(std::unique_ptr<StreamPlace>&) override { return ok(); }
    Status lead(weftStream_t, const StreamPlace*) override { return ok(); }
    Status zero_for(weftStream_t, void* memory, size_t bytes) override { return zero(memory, bytes); }
    Status synchronize() override { return ok(); }
    Result<std::shared_ptr<void>> allocate(size_t bytes, bool) override {
        void* memory = nullptr;
        WEFT_TRY(called(weftHostAlloc(&memory, bytes)));
        return std::shared_ptr<void>(memory, weftMemFree);
    }
    // It is whole pages of a shared segment, which other processes may map: the pages are freed for all of them.
    bool discard(std::shared_ptr<void>& memory, size_t bytes) override {
        return madvise(memory.get(), bytes, MADV_REMOVE) == 0;
    }
    Status back(std::shared_ptr<void>& memory, size_t bytes) override {
        int result = 0;
        do result = madvise(memory.get(), bytes, populate_for_writing);
        while (result != 0 && errno == EINTR);
        if (result == 0 || errno == EINVAL) return ok();
        return fail(error::memory_arena, "{} bytes of memory that were given back cannot be allocated again: {}", bytes,
                    errno_text(errno));
    }
    Result<std::shared_ptr<void>> allocate_on_host(size_t bytes) override { return allocate(bytes, false); }
};

}  // namespace

void HeldMemory::add(size_t bytes) {
    const size_t now = bytes_ += bytes;
    size_t most = most_bytes_;
    while (now > most && !most_bytes_.compare_exchange_weak(most, now)) {
    }
}

std::unique_ptr<MemorySpace> host_space() { return std::make_unique<HostSpace>(); }

}  // namespace weft::internal::train
