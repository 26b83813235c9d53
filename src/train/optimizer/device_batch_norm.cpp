// device_batch_norm.cpp: batch_norm.hpp on a device: kernels and one collective on the caller's stream.
#include <algorithm>

#include "src/drivers/cuda/memory.hpp"
#include "src/drivers/cuda/pointer.hpp"
#include "src/gpu/domain/training_kernel.hpp"
#include "src/gpu/kernels/device_code.hpp"
#include "src/gpu/kernels/training/batch_norm_arguments.hpp"
#include "src/train/optimizer/batch_norm.hpp"
#include "src/train/peers.hpp"

namespace weft::internal::train {

namespace {

using cuda::BatchNormWork;

// The kernel and its memory, for one call.
class DeviceBatchNorm {
  public:
    static Result<DeviceBatchNorm> make(const BatchNormShape& shape, int device, weftComm_t comm, weftStream_t stream) {
        auto driver = cuda::Driver::get();
        if (!driver) return driver.take_status();
        auto context = cuda::Context::retain(**driver, device);
        if (!context) return context.take_status();
        DeviceBatchNorm made(std::move(*context), comm, stream);
        auto kernel = cuda::training_kernel(made.context_, cuda::optimizer_code(), cuda::batch_norm_entry_point);
        if (!kernel) return kernel.take_status();
        made.kernel_ = *kernel;
        int ranks = 0;
        WEFT_TRY(called(weftCommCount(comm, &ranks)));
        cuda::BatchNormArguments& arguments = made.arguments;
        arguments.form.type = shape.datatype;
        arguments.form.batch = shape.batch;
        arguments.form.channels = shape.channels;
        arguments.form.inner = shape.inner;
        arguments.form.slices = cuda::batch_norm_slices(shape.count(), shape.channels);
        arguments.form.ranks = uint64_t(ranks);
        WEFT_TRY(made.reserve());
        return made;
    }

    Status launch(BatchNormWork work) {
        const bool by_slice = work == BatchNormWork::measure || work == BatchNormWork::slopes;
        const uint64_t threads = cuda::batch_norm_threads;
        const uint64_t blocks = by_slice ? arguments.form.channels * arguments.form.slices
                                         : (2 * arguments.form.channels + threads - 1) / threads;
        arguments.work = work;
        const cuda::ContextScope scope(context_);
        void* parameters[] = {&arguments};
        return kernel_.launch(
            {.blocks = unsigned(std::min(blocks, cuda::batch_norm_blocks_max)), .threads = unsigned(threads)},
            static_cast<CUstream>(stream_), parameters);
    }
    Status all_gather() const {
        const size_t count = 2 * arguments.form.channels + 1;
        auto* const all = const_cast<double*>(arguments.messages);
        return finished(weftAllGather(arguments.message, all, count, weftFloat64, comm_, stream_), comm_);
    }
    Status all_reduce() const {
        double* const sums = arguments.message;
        return finished(weftAllReduce(sums, sums, 2 * arguments.form.channels, weftFloat64, weftSum, comm_, stream_),
                        comm_);
    }
    // The number of elements of a channel over all ranks, after finish. Waits for the stream.
    Result<uint64_t> count() const {
        const cuda::Driver& driver = context_.driver();
        const cuda::ContextScope scope(context_);
        uint64_t total = 0;
        WEFT_TRY(cuda::copy_async(driver, reinterpret_cast<CUdeviceptr>(&total),
                                  reinterpret_cast<CUdeviceptr>(arguments.results.count), sizeof total,
                                  static_cast<CUstream>(stream_)));
        WEFT_TRY(driver.check(driver.StreamSynchronize(static_cast<CUstream>(stream_)),
                              "wait for the statistics of batch norm"));
        weftResult_t state = weftSuccess;
        WEFT_TRY(called(weftCommGetAsyncError(comm_, &state)));
        WEFT_TRY(called(state, comm_));
        return total;
    }
    // Memory for the count.
    uint64_t* own_count() const { return count_; }

    cuda::BatchNormArguments arguments = {};

  private:
    DeviceBatchNorm(cuda::Context context, weftComm_t comm, weftStream_t stream)
        : context_(std::move(context)), comm_(comm), stream_(stream) {}

    Status reserve() {
        const size_t size = 2 * arguments.form.channels + 1,
                     slices = 2 * arguments.form.channels * arguments.form.slices;
        const size_t numbers = slices + size * (1 + arguments.form.ranks) + 1;
        const cuda::ContextScope scope(context_);
        auto memory = cuda::StreamMemory::allocate(context_, numbers * sizeof(double), static_cast<CUstream>(stream_));
        if (!memory) return memory.take_status();
        memory_ = std::move(*memory);
        arguments.of_slices = static_cast<double*>(memory_.data());
        arguments.message = arguments.of_slices + slices;
        arguments.messages = arguments.message + size;
        count_ = static_cast<uint64_t*>(memory_.data()) + numbers - 1;
        return ok();
    }

    cuda::Context context_;
    weftComm_t comm_;
    weftStream_t stream_;
    cuda::Kernel kernel_;
    cuda::StreamMemory memory_;
    uint64_t* count_ = nullptr;
};

}  // namespace

Status batch_norm(const BatchNormForward& forward, int device, weftComm_t comm, weftStream_t stream) {
    auto made = DeviceBatchNorm::make(forward.shape, device, comm, stream);
    if (!made) return made.take_status();
    cuda::BatchNormArguments& arguments = made->arguments;
    arguments.x = forward.x;
    arguments.epsilon = forward.epsilon;
    arguments.momentum = forward.momentum;
    arguments.results.mean = forward.mean;
    arguments.results.invstd = forward.invstd;
    arguments.results.running_mean = forward.running_mean;
    arguments.results.running_variance = forward.running_variance;
    arguments.results.count = forward.count_on_device ? forward.count : made->own_count();
    WEFT_TRY(made->launch(BatchNormWork::measure));
    WEFT_TRY(made->launch(BatchNormWork::join_slices));
    WEFT_TRY(made->all_gather());
    WEFT_TRY(made->launch(BatchNormWork::finish));
    if (!forward.count || forward.count_on_device) return ok();
    const auto count = made->count();
    if (!count) return count.status().copy();
    *forward.count = *count;
    return check_batch_norm_count(*count);
}

Status batch_norm(const BatchNormBackward& backward, int device, weftComm_t comm, weftStream_t stream) {
    auto made = DeviceBatchNorm::make(backward.shape, device, comm, stream);
    if (!made) return made.take_status();
    cuda::BatchNormArguments& arguments = made->arguments;
    arguments.x = backward.x;
    arguments.dy = backward.dy;
    arguments.results.mean = const_cast<float*>(backward.mean);
    arguments.results.own_sums = backward.own;
    arguments.results.sums = backward.all;
    WEFT_TRY(made->launch(BatchNormWork::slopes));
    WEFT_TRY(made->launch(BatchNormWork::add_slices));
    WEFT_TRY(made->all_reduce());
    return made->launch(BatchNormWork::write_sums);
}

}  // namespace weft::internal::train
