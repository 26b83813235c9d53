// host_worker.cpp: the work on parts in host memory (part_worker.hpp), block by block.
#include <algorithm>
#include <cmath>

#include "src/kernels/cpu_kernels.hpp"
#include "src/train/optimizer/part_worker.hpp"

namespace weft::internal::train {

namespace {

// A block of a part: its elements from `first` on, and its gradient as fp32.
struct Block {
    const PartTask& task;
    size_t first, count;
    float* scratch;  // block_elements

    float* values() const { return task.part->values + first; }
    float* moment(float* all) const { return all ? all + first : nullptr; }
    const float* gradient() const {
        return read_block(task.part->gradient, task.part->gradient_type, first, count, scratch);
    }
    void write_copy() const {
        if (task.part->copy) write_block(task.part->copy, task.part->copy_type, first, count, values());
    }
};

struct HostRoot {
    float operator()(float value) const { return std::sqrt(value); }
};

void run_block(PartWork work, const Block& block) {
    const OptimizerKernels& kernels = cpu_kernels().optimizers;
    const PartTask& task = block.task;
    float *const first = block.moment(task.first), *const second = block.moment(task.second);
    switch (work) {
        case PartWork::sgd: kernels.sgd(task.sgd, block.values(), first, block.gradient(), block.count); break;
        case PartWork::adam:
            kernels.adam(task.adam, block.values(), first, second, block.gradient(), block.count);
            break;
        case PartWork::lamb:
            kernels.lamb(task.adam, task.factor, block.values(), first, second, block.gradient(), block.count);
            break;
        case PartWork::frozen: {
            float* const values = block.values();
            for (size_t i = 0; i < block.count; ++i)
                descend_frozen(task.frozen, task.factor, values[i], first[i], second[i], HostRoot());
            break;
        }
        case PartWork::scale:
            cpu_kernels().scale[weftFloat32](block.scratch, block.gradient(), block.count, &task.factor);
            write_block(task.part->gradient, task.part->gradient_type, block.first, block.count, block.scratch);
            return;
        default: __builtin_unreachable();
    }
    block.write_copy();
}

// The largest magnitude, or NaN if there is any.
double largest_of(const float* values, size_t count, double largest) {
    for (size_t i = 0; i < count; ++i) {
        const double magnitude = std::fabs(double(values[i]));
        if (!(magnitude <= largest) && !std::isnan(largest)) largest = magnitude;
    }
    return largest;
}

double powers_of(const float* values, size_t count, double power) {
    if (power == 2) return cpu_kernels().optimizers.squares(values, count);
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
        const double magnitude = std::fabs(double(values[i]));
        sum += power == 1 ? magnitude : std::pow(magnitude, power);
    }
    return sum;
}

void measure_block(const Block& block, double power, PartSums& sums) {
    const float* const gradient = block.gradient();
    if (!cpu_kernels().optimizers.all_finite(gradient, block.count)) sums.second = 1;
    sums.first = std::isinf(power) ? largest_of(gradient, block.count, sums.first)
                                   : sums.first + powers_of(gradient, block.count, power);
}

void add_frozen(const Block& block, PartSums& sums) {
    const PartTask& task = block.task;
    const float *const momentum = block.gradient(), *const values = block.values();
    float *const first = block.moment(task.first), *const fresh = block.moment(task.fresh);
    const float* const second = block.moment(task.second);
    for (size_t i = 0; i < block.count; ++i) {
        const FrozenFacts facts =
            frozen_facts(task.frozen, values[i], first[i], second[i], fresh[i], momentum[i], HostRoot());
        sums.first += double(facts.adam) * double(facts.adam);
        sums.second += double(facts.update) * double(facts.update);
        sums.largest = std::max(sums.largest, double(facts.ratio));
    }
}

void add_norms(PartWork work, const Block& block, PartSums& sums) {
    const OptimizerKernels& kernels = cpu_kernels().optimizers;
    const PartTask& task = block.task;
    const float* update = block.gradient();
    if (work == PartWork::lamb_norms) {
        kernels.lamb_direction(task.adam, block.values(), block.moment(task.first), block.moment(task.second), update,
                               block.scratch, block.count);
        update = block.scratch;
    }
    sums.first += kernels.squares(block.values(), block.count);
    sums.second += kernels.squares(update, block.count);
}

class HostWorker : public PartWorker {
  public:
    MemorySpace& space() override { return *space_; }
    Status run(PartWork work, std::span<const PartTask> tasks, weftStream_t) override {
        for (const PartTask& task : tasks)
            for_each_block(task.part->count, [&](size_t first, size_t count) {
                run_block(work, {task, first, count, scratch_});
            });
        return ok();
    }
    Result<std::vector<PartSums>> sums(PartWork work, std::span<const PartTask> tasks, double power,
                                       weftStream_t) override {
        std::vector<PartSums> all;
        for (const PartTask& task : tasks) {
            PartSums& sums = all.emplace_back(PartSums{0, 0, 0});
            for_each_block(task.part->count, [&](size_t first, size_t count) {
                const Block block{task, first, count, scratch_};
                if (work == PartWork::measure)
                    measure_block(block, power, sums);
                else if (work == PartWork::frozen_norms)
                    add_frozen(block, sums);
                else
                    add_norms(work, block, sums);
            });
        }
        return all;
    }

  private:
    std::unique_ptr<MemorySpace> space_ = host_space();
    alignas(64) float scratch_[block_elements];
};

}  // namespace

std::unique_ptr<PartWorker> host_worker() { return std::make_unique<HostWorker>(); }

}  // namespace weft::internal::train
