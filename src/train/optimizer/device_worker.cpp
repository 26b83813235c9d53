// device_worker.cpp: the work on parts in a device's memory (part_worker.hpp): one kernel for many parts.
#include <algorithm>
#include <cmath>

#include "src/drivers/cuda/memory.hpp"
#include "src/drivers/cuda/stream.hpp"
#include "src/gpu/domain/training_kernel.hpp"
#include "src/gpu/kernels/device_code.hpp"
#include "src/gpu/kernels/training/optimizer_arguments.hpp"
#include "src/train/optimizer/part_worker.hpp"

namespace weft::internal::train {

namespace {

uint64_t chunks_of(const ModelPart& part) { return (part.count + cuda::optimizer_chunk - 1) / cuda::optimizer_chunk; }

class DeviceWorker : public PartWorker {
  public:
    static Result<std::unique_ptr<PartWorker>> make(int device) {
        auto worker = std::make_unique<DeviceWorker>();
        auto driver = cuda::Driver::get();
        if (!driver) return driver.take_status();
        auto context = cuda::Context::retain(**driver, device);
        if (!context) return context.take_status();
        worker->context_ = std::move(*context);
        worker->device_ = device;
        auto space = device_space(device);
        if (!space) return space.take_status();
        worker->space_ = std::move(*space);
        auto kernel = cuda::training_kernel(worker->context_, cuda::optimizer_code(), cuda::optimizer_entry_point);
        if (!kernel) return kernel.take_status();
        worker->kernel_ = *kernel;
        return std::unique_ptr<PartWorker>(std::move(worker));
    }

    MemorySpace& space() override { return *space_; }
    int device() const override { return device_; }
    Status run(PartWork work, std::span<const PartTask> tasks, weftStream_t stream) override {
        for (; !tasks.empty(); tasks = tasks.subspan(std::min<size_t>(tasks.size(), cuda::optimizer_parts_max)))
            WEFT_TRY(launch(work, tasks, 0, nullptr, stream).status().copy());
        return ok();
    }
    Result<std::vector<PartSums>> sums(PartWork work, std::span<const PartTask> tasks, double power,
                                       weftStream_t stream) override {
        constexpr size_t most = size_t(cuda::optimizer_parts_max) * cuda::optimizer_sum_blocks_max;
        if (scratch_.bytes() == 0) {
            auto memory = cuda::DeviceMemory::allocate(context_, most * sizeof(PartSums));
            if (!memory) return memory.take_status();
            scratch_ = std::move(*memory);
        }
        std::vector<PartSums> all, of_blocks(most);
        while (!tasks.empty()) {
            auto* const written = static_cast<PartSums*>(scratch_.data());
            auto blocks = launch(work, tasks, power, written, stream);
            if (!blocks) return blocks.take_status();
            const size_t parts = std::min<size_t>(tasks.size(), cuda::optimizer_parts_max);
            WEFT_TRY(read_sums(of_blocks, parts * size_t(*blocks), stream));
            const bool largest = work == PartWork::measure && std::isinf(power);
            for (size_t p = 0; p < parts; ++p)
                all.push_back(total_of(std::span(of_blocks).subspan(p * size_t(*blocks), size_t(*blocks)), largest));
            tasks = tasks.subspan(parts);
        }
        return all;
    }

  private:
    // The first tasks; gives the number of blocks.
    Result<int> launch(PartWork work, std::span<const PartTask> tasks, double power, PartSums* sums,
                       weftStream_t stream) {
        cuda::OptimizerArguments arguments{};
        arguments.work = work;
        arguments.parts = int32_t(std::min<size_t>(tasks.size(), cuda::optimizer_parts_max));
        arguments.power = power;
        arguments.sums = sums;
        uint64_t chunks = 0;
        for (int p = 0; p < arguments.parts; ++p) {
            const PartTask& task = tasks[size_t(p)];
            const ModelPart& part = *task.part;
            arguments.part[p] = {part.values, task.first,     task.second,        part.copy, part.gradient,
                                 part.count,  part.copy_type, part.gradient_type, task.sgd,  task.adam,
                                 task.factor, task.frozen,    task.fresh};
            chunks += chunks_of(part);
        }
        const int most = sums ? cuda::optimizer_sum_blocks_max : cuda::optimizer_blocks_max;
        const int blocks = int(std::clamp<uint64_t>(chunks, 1, uint64_t(most)));
        cuda::ContextScope scope(context_);
        WEFT_TRY(scope.take_status());
        void* parameters[] = {&arguments};
        const cuda::LaunchShape shape{.blocks = unsigned(blocks), .threads = unsigned(cuda::optimizer_threads)};
        WEFT_TRY(kernel_.launch(shape, static_cast<CUstream>(stream), parameters));
        return blocks;
    }
    Status read_sums(std::vector<PartSums>& to, size_t count, weftStream_t stream) {
        const cuda::ContextScope scope(context_);
        const cuda::Driver& driver = context_.driver();
        WEFT_TRY(cuda::copy_async(driver, reinterpret_cast<CUdeviceptr>(to.data()), scratch_.address(),
                                  count * sizeof(PartSums), static_cast<CUstream>(stream)));
        return driver.check(driver.StreamSynchronize(static_cast<CUstream>(stream)), "wait for the norms of gradients");
    }
    static PartSums total_of(std::span<const PartSums> blocks, bool largest) {
        PartSums total{0, 0, 0};
        for (const PartSums& block : blocks) {
            if (!largest)
                total.first += block.first;
            else if (!(block.first <= total.first) && !std::isnan(total.first))
                total.first = block.first;
            total.second += block.second;
            total.largest = std::max(total.largest, block.largest);
        }
        return total;
    }

    int device_ = -1;
    cuda::Context context_;
    std::unique_ptr<MemorySpace> space_;
    cuda::Kernel kernel_;
    cuda::DeviceMemory scratch_;  // [part][block] of a launch
};

}  // namespace

Result<std::unique_ptr<PartWorker>> device_worker(int device) { return DeviceWorker::make(device); }

}  // namespace weft::internal::train
