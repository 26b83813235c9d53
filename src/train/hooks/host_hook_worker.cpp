// host_hook_worker.cpp: the arithmetic of compressing hooks by the CPU (hook_worker.hpp).
#include <algorithm>
#include <optional>

#include "src/gpu/kernels/training/hook_elements.hpp"
#include "src/gpu/kernels/training/hook_matrices.hpp"
#include "src/train/hooks/hook_worker.hpp"
#include "src/train/hooks/largest_numbers.hpp"

namespace weft::internal::train {

namespace {

// Several sums at once, which become vectors.
float product_of_rows(const float* left, const float* right, size_t count) {
    constexpr size_t lanes = cuda::row_lanes;
    float sums[lanes] = {};
    size_t i = 0;
    for (; i + lanes <= count; i += lanes)
        for (size_t k = 0; k < lanes; ++k) sums[k] += left[i + k] * right[i + k];
    for (; i < count; ++i) sums[i % lanes] += left[i] * right[i];
    float sum = 0;
    for (const float lane : sums) sum += lane;
    return sum;
}

void add_scaled_row(float* to, float factor, const float* from, size_t count) {
    for (size_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

class HostHookWorker : public HookWorker {
  public:
    MemorySpace& space() override { return *space_; }
    Status read(float* to, const void* from, size_t count, weftDataType_t type) override {
        read_numbers(to, from, count, type);
        return ok();
    }
    Status write(void* to, const float* from, size_t count, weftDataType_t type) override {
        write_numbers(to, from, count, type);
        return ok();
    }
    Status each(HookWork work, size_t count, float* numbers, const float* first, const float* second,
                float factor) override {
        cuda::HookArguments arguments = arguments_of(work, count, numbers, first);
        arguments.second = second;
        arguments.factor = factor;
        cuda::hook_elements(cuda::AllNumbers(), arguments);
        return ok();
    }
    Status scale(HookWork work, size_t count, float* numbers, double* scale) override {
        cuda::HookArguments arguments = arguments_of(work, count, numbers, nullptr);
        arguments.scale = scale;
        cuda::hook_elements(cuda::AllNumbers(), arguments);
        return ok();
    }
    Status find_scale(double* scale, const float* numbers, size_t count) override {
        cuda::set_layer_scale(scale, root_mean_square({numbers, count}));
        return ok();
    }
    Status measure(const float* numbers, size_t count) override {
        facts_.largest_bits = __builtin_bit_cast(uint32_t, largest_magnitude({numbers, count}));
        return ok();
    }
    Status keep(float* to, const float* from, size_t count) override {
        cuda::hook_elements(cuda::AllNumbers(), arguments_of(HookWork::keep, count, to, from));
        return ok();
    }
    Status begin_message(const MessageForm& form, const float* numbers, size_t count) override {
        if (form.method == weftTrainOneBit) one_bit_.begin({numbers, count});
        if (form.method == weftTrainFloat8) float8_.emplace(form.float8).begin({numbers, count});
        return ok();
    }
    Status encode(const MessageForm& form, const float* numbers, size_t count, std::byte* message) override {
        if (form.method == weftTrainOneBit)
            one_bit_.encode({numbers, count}, message);
        else if (form.method == weftTrainFloat8)
            float8_->encode({numbers, count}, message);
        else
            form.with_codec([&](const Codec& codec) { codec.encode({numbers, count}, message); });
        return ok();
    }
    Status decode(const MessageForm& form, const std::byte* message, size_t count, float* numbers) override {
        form.with_codec([&](const Codec& codec) { codec.decode(message, {numbers, count}); });
        return ok();
    }
    Status select(const float* numbers, size_t count, size_t kept, IndexedNumber* list) override {
        const auto largest = largest_numbers({numbers, count}, kept);
        std::copy(largest.begin(), largest.end(), list);
        return ok();
    }
    Status add_selected(float* numbers, size_t count, const IndexedNumber* list, size_t kept) override {
        for (const IndexedNumber& each : std::span(list, kept)) {
            if (each.index >= count)
                return fail(error::internal_exception, "a rank sent element {} of a bucket of {}", each.index, count);
            numbers[each.index] += each.number;
        }
        return ok();
    }
    Status zero_selected(float* numbers, const IndexedNumber* list, size_t kept) override {
        for (const IndexedNumber& each : std::span(list, kept)) numbers[each.index] = 0;
        return ok();
    }
    Status begin_right(const LowRankMatrix& matrix, size_t rank) override {
        cuda::HookBlock block;
        cuda::begin_right(alone(), matrix.right, rank, matrix.columns, matrix.seed, block);
        return ok();
    }
    Status orthonormalize(float* columns, size_t count, size_t length) override {
        cuda::HookBlock block;
        cuda::orthonormalize(alone(), columns, count, length, block);
        return ok();
    }
    Status multiply_right(const LowRankMatrix& matrix, size_t rank, float* left) override {
        for (size_t k = 0; k < rank; ++k)
            for (size_t row = 0; row < matrix.rows; ++row)
                *left++ = product_of_rows(row_of(matrix, row), matrix.right + k * matrix.columns, matrix.columns);
        return ok();
    }
    Status multiply_left(const LowRankMatrix& matrix, size_t rank, const float* left, float* right) override {
        std::fill_n(right, rank * matrix.columns, 0.0f);
        for (size_t k = 0; k < rank; ++k, right += matrix.columns)
            for (size_t row = 0; row < matrix.rows; ++row)
                add_scaled_row(right, *left++, row_of(matrix, row), matrix.columns);
        return ok();
    }
    Status multiply_factors(const LowRankMatrix& matrix, size_t rank, const float* left, const float* right) override {
        std::fill_n(matrix.numbers, matrix.rows * matrix.columns, 0.0f);
        for (size_t k = 0; k < rank; ++k, right += matrix.columns)
            for (size_t row = 0; row < matrix.rows; ++row)
                add_scaled_row(row_of(matrix, row), *left++, right, matrix.columns);
        return ok();
    }

  private:
    static cuda::Team alone() { return {0, 1, 0, 1}; }
    static float* row_of(const LowRankMatrix& matrix, size_t row) { return matrix.numbers + row * matrix.columns; }
    cuda::HookArguments arguments_of(HookWork work, size_t count, float* numbers, const float* first) {
        cuda::HookArguments arguments = {};
        arguments.work = work;
        arguments.count = count;
        arguments.numbers = numbers;
        arguments.first = first;
        arguments.facts = &facts_;
        return arguments;
    }

    std::unique_ptr<MemorySpace> space_ = host_space();
    cuda::HookFacts facts_ = {};
    OneBitCodec one_bit_;
    std::optional<Float8Codec> float8_;  // of the message that was begun
};

}  // namespace

std::unique_ptr<HookWorker> host_hook_worker() { return std::make_unique<HostHookWorker>(); }

Result<std::unique_ptr<HookWorker>> hook_worker(int device) {
    if (device < 0) return host_hook_worker();
    return device_hook_worker(device);
}

}  // namespace weft::internal::train
