// device_hook_worker.cpp: the arithmetic of compressing hooks on a device (hook_worker.hpp): one kernel for all work.
#include <algorithm>
#include <utility>

#include "src/gpu/domain/training_kernel.hpp"
#include "src/train/flat_buffer.hpp"
#include "src/train/hooks/hook_worker.hpp"

namespace weft::internal::train {

namespace {

class DeviceHookWorker : public HookWorker {
  public:
    static Result<std::unique_ptr<HookWorker>> make(int device) {
        auto worker = std::make_unique<DeviceHookWorker>();
        auto driver = cuda::Driver::get();
        if (!driver) return driver.take_status();
        auto context = cuda::Context::retain(**driver, device);
        if (!context) return context.take_status();
        worker->context_ = std::move(*context);
        auto space = device_space(device);
        if (!space) return space.take_status();
        worker->space_ = std::move(*space);
        WEFT_TRY(worker->space_->prepare_arithmetic());
        auto kernel = cuda::training_kernel(worker->context_, cuda::hook_code(), cuda::hook_entry_point);
        if (!kernel) return kernel.take_status();
        worker->kernel_ = *kernel;
        auto facts = FlatBuffer::allocate(*worker->space_, sizeof(cuda::HookFacts));
        if (!facts) return facts.take_status();
        worker->facts_ = std::move(*facts);
        return std::unique_ptr<HookWorker>(std::move(worker));
    }

    MemorySpace& space() override { return *space_; }
    Status read(float* to, const void* from, size_t count, weftDataType_t type) override {
        auto arguments = arguments_of(HookWork::read, count, to);
        arguments.type = type;
        arguments.memory = const_cast<void*>(from);
        return for_numbers(arguments);
    }
    Status write(void* to, const float* from, size_t count, weftDataType_t type) override {
        auto arguments = arguments_of(HookWork::write, count, const_cast<float*>(from));
        arguments.type = type;
        arguments.memory = to;
        return for_numbers(arguments);
    }
    Status each(HookWork work, size_t count, float* numbers, const float* first, const float* second,
                float factor) override {
        auto arguments = arguments_of(work, count, numbers);
        arguments.first = first;
        arguments.second = second;
        arguments.factor = factor;
        return for_numbers(arguments);
    }
    Status scale(HookWork work, size_t count, float* numbers, double* scale) override {
        auto arguments = arguments_of(work, count, numbers);
        arguments.scale = scale;
        return for_numbers(arguments);
    }
    Status find_scale(double* scale, const float* numbers, size_t count) override {
        return add_squares(HookWork::layer_scale, numbers, count, scale);
    }
    Status measure(const float* numbers, size_t count) override {
        WEFT_TRY(space_->zero(&facts()->largest_bits, sizeof(uint32_t)));
        return for_numbers(arguments_of(HookWork::measure, count, const_cast<float*>(numbers)));
    }
    Status keep(float* to, const float* from, size_t count) override {
        auto arguments = arguments_of(HookWork::keep, count, to);
        arguments.first = from;
        return for_numbers(arguments);
    }
    Status begin_message(const MessageForm& form, const float* numbers, size_t count) override {
        if (form.method == weftTrainOneBit) return add_squares(HookWork::total, numbers, count, nullptr);
        return form.method == weftTrainFloat8 ? measure(numbers, count) : ok();
    }
    Status encode(const MessageForm& form, const float* numbers, size_t count, std::byte* message) override {
        if (form.method == weftTrainInt8) return space_->encode({8, form.block}, numbers, count, message);
        auto arguments = arguments_of(of_form(form, HookWork::encode_bits, HookWork::encode_float8), count,
                                      const_cast<float*>(numbers));
        arguments.type = form.float8;
        arguments.memory = message;
        return launch(arguments, std::max<uint64_t>(count, 1));  // also an empty message has a scale
    }
    Status decode(const MessageForm& form, const std::byte* message, size_t count, float* numbers) override {
        if (form.method == weftTrainInt8) return space_->decode({8, form.block}, message, count, numbers);
        auto arguments = arguments_of(of_form(form, HookWork::decode_bits, HookWork::decode_float8), count, numbers);
        arguments.type = form.float8;
        arguments.memory = const_cast<std::byte*>(message);
        return for_numbers(arguments);
    }
    Status select(const float* numbers, size_t count, size_t kept, IndexedNumber* list) override {
        WEFT_TRY(counts_.grow(*space_, cuda::selection_counts(count) * sizeof(uint32_t)));
        auto arguments = arguments_of(HookWork::count_high, count, const_cast<float*>(numbers));
        arguments.kept = kept;
        arguments.memory = list;
        for (const HookWork work : {HookWork::count_high, HookWork::find_high, HookWork::count_low, HookWork::find_low,
                                    HookWork::count_parts, HookWork::place_parts, HookWork::select}) {
            const bool counts = work == HookWork::count_high || work == HookWork::count_low;
            if (counts) WEFT_TRY(space_->zero(counts_.data(), cuda::selection_values * sizeof(uint32_t)));
            arguments.work = work;
            const bool by_chunks = work == HookWork::count_parts || work == HookWork::select;
            WEFT_TRY(counts      ? for_numbers(arguments)
                     : by_chunks ? launch_blocks(arguments, cuda::hook_chunks(count))
                                 : launch_blocks(arguments, 1));
        }
        return ok();
    }
    Status add_selected(float* numbers, size_t count, const IndexedNumber* list, size_t kept) override {
        auto arguments = arguments_of(HookWork::add_selected, kept, numbers);
        arguments.memory = const_cast<IndexedNumber*>(list);
        arguments.limit = count;
        return for_numbers(arguments);
    }
    Status zero_selected(float* numbers, const IndexedNumber* list, size_t kept) override {
        auto arguments = arguments_of(HookWork::zero_selected, kept, numbers);
        arguments.memory = const_cast<IndexedNumber*>(list);
        return for_numbers(arguments);
    }
    Status begin_right(const LowRankMatrix& matrix, size_t rank) override {
        return launch_blocks(matrix_arguments(HookWork::begin_right, matrix, rank, matrix.right), 1);
    }
    Status orthonormalize(float* columns, size_t count, size_t length) override {
        return launch_blocks(matrix_arguments(HookWork::orthonormalize, {nullptr, length}, count, columns), 1);
    }
    Status multiply_right(const LowRankMatrix& matrix, size_t rank, float* left) override {
        auto arguments = matrix_arguments(HookWork::multiply_right, matrix, rank, left);
        arguments.first = matrix.numbers;
        arguments.second = matrix.right;
        return launch(arguments, matrix.rows * rank * 16);
    }
    Status multiply_left(const LowRankMatrix& matrix, size_t rank, const float* left, float* right) override {
        auto arguments = matrix_arguments(HookWork::multiply_left, matrix, rank, right);
        arguments.first = matrix.numbers;
        arguments.second = left;
        return launch(arguments, matrix.columns * rank);
    }
    Status multiply_factors(const LowRankMatrix& matrix, size_t rank, const float* left, const float* right) override {
        auto arguments = matrix_arguments(HookWork::product, matrix, rank, matrix.numbers);
        arguments.first = left;
        arguments.second = right;
        return launch(arguments, matrix.rows * matrix.columns);
    }

  private:
    static HookWork of_form(const MessageForm& form, HookWork bits, HookWork float8) {
        return form.method == weftTrainOneBit ? bits : float8;
    }
    cuda::HookFacts* facts() const { return reinterpret_cast<cuda::HookFacts*>(facts_.data()); }
    cuda::HookArguments arguments_of(HookWork work, size_t count, float* numbers) const {
        cuda::HookArguments arguments = {};
        arguments.work = work;
        arguments.count = count;
        arguments.numbers = numbers;
        arguments.facts = facts();
        arguments.sums = reinterpret_cast<double*>(sums_.data());
        arguments.counts = reinterpret_cast<uint32_t*>(counts_.data());
        return arguments;
    }
    cuda::HookArguments matrix_arguments(HookWork work, const LowRankMatrix& matrix, size_t rank,
                                         float* numbers) const {
        auto arguments = arguments_of(work, 0, numbers);
        arguments.matrix = {matrix.rows, matrix.columns, matrix.seed};
        arguments.kept = rank;
        return arguments;
    }
    Status add_squares(HookWork total, const float* numbers, size_t count, double* scale) {
        WEFT_TRY(sums_.grow(*space_, cuda::hook_chunks(count) * sizeof(double)));
        auto arguments = arguments_of(HookWork::squares, count, const_cast<float*>(numbers));
        arguments.scale = scale;
        WEFT_TRY(launch_blocks(arguments, cuda::hook_chunks(count)));
        arguments.work = total;
        return launch_blocks(arguments, 1);
    }
    Status for_numbers(const cuda::HookArguments& arguments) { return launch(arguments, arguments.count); }
    // Each thread takes some of so many numbers.
    Status launch(const cuda::HookArguments& arguments, uint64_t numbers) {
        constexpr uint64_t of_block = uint64_t(cuda::hook_threads) * 8;
        return launch_blocks(arguments, (numbers + of_block - 1) / of_block);
    }
    Status launch_blocks(cuda::HookArguments arguments, uint64_t blocks) {
        if (blocks == 0) return ok();
        const cuda::ContextScope scope(context_);
        void* parameters[] = {&arguments};
        const auto most = std::min<uint64_t>(blocks, cuda::hook_blocks_max);
        return kernel_.launch({.blocks = unsigned(most), .threads = unsigned(cuda::hook_threads)},
                              static_cast<CUstream>(space_->stream()), parameters);
    }

    cuda::Context context_;
    cuda::Kernel kernel_;
    std::unique_ptr<MemorySpace> space_;
    FlatBuffer facts_, sums_, counts_;  // of kernels
};

}  // namespace

Result<std::unique_ptr<HookWorker>> device_hook_worker(int device) { return DeviceHookWorker::make(device); }

}  // namespace weft::internal::train
