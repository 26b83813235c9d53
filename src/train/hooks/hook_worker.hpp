// hook_worker.hpp: the arithmetic of compressing hooks on float32 numbers, by the CPU or by a device.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "src/gpu/kernels/training/hook_arguments.hpp"
#include "src/train/hooks/message_form.hpp"
#include "src/train/memory_space.hpp"

namespace weft::internal::train {

using cuda::HookWork;
using cuda::IndexedNumber;

// A gradient of rows x columns numbers, one row behind the other, and its factors of `rank` columns each.
struct LowRankMatrix {
    float* numbers = nullptr;
    size_t rows = 0, columns = 0;
    // The columns of the right factor, one behind the other: those of the last iteration. Zeros: random ones.
    float* right = nullptr;
    uint64_t seed = 0;  // of random columns, equal on all ranks
};

// All memory is its space's, where work is done in the order of the calls: on a device it is enqueued on the space's
// stream. Both kinds give the same bits. Thread-bound.
class HookWorker {
  public:
    HookWorker() = default;
    HookWorker(const HookWorker&) = delete;
    HookWorker& operator=(const HookWorker&) = delete;
    virtual ~HookWorker() = default;

    virtual MemorySpace& space() = 0;

    // Elements of a floating type as float32, and back: rounded to the type.
    virtual Status read(float* to, const void* from, size_t count, weftDataType_t type) = 0;
    virtual Status write(void* to, const float* from, size_t count, weftDataType_t type) = 0;
    // HookWork::mix to average, on each number.
    virtual Status each(HookWork work, size_t count, float* numbers, const float* first = nullptr,
                        const float* second = nullptr, float factor = 1) = 0;
    // numbers[i] *= *scale, or divided by it: HookWork::scale and unscale. The scale is a float64 in the space.
    virtual Status scale(HookWork work, size_t count, float* numbers, double* scale) = 0;
    // The inverse of the numbers' root mean square; 1: it is 0.
    virtual Status find_scale(double* scale, const float* numbers, size_t count) = 0;
    // keep() copies if all these numbers are finite.
    virtual Status measure(const float* numbers, size_t count) = 0;
    virtual Status keep(float* to, const float* from, size_t count) = 0;

    // Before the parts of `numbers` are encoded.
    virtual Status begin_message(const MessageForm& form, const float* numbers, size_t count) = 0;
    virtual Status encode(const MessageForm& form, const float* numbers, size_t count, std::byte* message) = 0;
    virtual Status decode(const MessageForm& form, const std::byte* message, size_t count, float* numbers) = 0;

    // The `kept` numbers of largest magnitude, in the order of their indices. NaNs count as the largest. Of equal ones the
    // first are taken.
    virtual Status select(const float* numbers, size_t count, size_t kept, IndexedNumber* list) = 0;
    virtual Status add_selected(float* numbers, size_t count, const IndexedNumber* list, size_t kept) = 0;
    virtual Status zero_selected(float* numbers, const IndexedNumber* list, size_t kept) = 0;

    // Makes the right factor orthonormal, with random columns in place of zeros.
    virtual Status begin_right(const LowRankMatrix& matrix, size_t rank) = 0;
    virtual Status orthonormalize(float* columns, size_t count, size_t length) = 0;
    // left = numbers * right
    virtual Status multiply_right(const LowRankMatrix& matrix, size_t rank, float* left) = 0;
    // right = numbers transposed * left
    virtual Status multiply_left(const LowRankMatrix& matrix, size_t rank, const float* left, float* right) = 0;
    // numbers = left * right transposed
    virtual Status multiply_factors(const LowRankMatrix& matrix, size_t rank, const float* left,
                                    const float* right) = 0;
};

std::unique_ptr<HookWorker> host_hook_worker();
Result<std::unique_ptr<HookWorker>> device_hook_worker(int device);
// For host memory (-1) or a device's.
Result<std::unique_ptr<HookWorker>> hook_worker(int device);

}  // namespace weft::internal::train
