#include "src/train/optimizer/gradient_norms.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace weft::internal::train {

namespace {

// Of the parts that have a gradient.
std::vector<PartTask> tasks_of(std::span<const ModelPart> parts, double factor) {
    std::vector<PartTask> tasks;
    for (const ModelPart& part : parts)
        if (part.gradient) tasks.push_back({.part = &part, .factor = float(factor)});
    return tasks;
}

}  // namespace

Result<double> gradient_norm(PartWorker& worker, std::span<const ModelPart> parts, const Axes& axes, double p,
                             weftStream_t stream) {
    const auto tasks = tasks_of(parts, 1);
    auto sums = worker.sums(PartWork::measure, tasks, p, stream);
    if (!sums) return sums.take_status();
    const auto join = [p](double left, double right) {
        if (!std::isinf(p)) return left + right;
        return std::isnan(left) || std::isnan(right) ? NAN : std::max(left, right);
    };
    std::map<uint32_t, double> by_axes;
    for (const ModelPart& part : parts) by_axes[part.axes];  // all ranks send equally many numbers
    for (size_t i = 0; i < tasks.size(); ++i) {
        double& sum = by_axes[tasks[i].part->axes];
        sum = join(sum, (*sums)[i].first);
    }
    std::vector<double> numbers;
    std::vector<uint32_t> masks;
    for (const auto& [mask, number] : by_axes) {
        masks.push_back(mask);
        numbers.push_back(number);
    }
    WEFT_TRY(axes.reduce(numbers, masks, std::isinf(p) ? weftMax : weftSum));
    double total = 0;
    for (const double number : numbers) total = join(total, number);
    if (p == 2) return std::sqrt(total);
    return std::isinf(p) || p == 1 ? total : std::pow(total, 1 / p);
}

Status scale_gradients(PartWorker& worker, std::span<const ModelPart> parts, double factor, weftStream_t stream) {
    return worker.run(PartWork::scale, tasks_of(parts, factor), stream);
}

Result<bool> gradients_finite(PartWorker& worker, std::span<const ModelPart> parts, weftStream_t stream) {
    auto sums = worker.sums(PartWork::measure, tasks_of(parts, 1), 2, stream);
    if (!sums) return sums.take_status();
    return std::all_of(sums->begin(), sums->end(), [](const PartSums& each) { return each.second == 0; });
}

double clip_coefficient(double norm, double max_norm) {
    const double coefficient = max_norm / (norm + 1e-6);
    return coefficient > 1 ? 1 : coefficient;  // NaN stays
}

Status LossScale::update() {
    const bool found = std::exchange(found_, false);
    if (!found) {
        if (++good_steps_ < rule_.growth_interval) return ok();
        good_steps_ = 0;
        // The scale multiplies fp32 numbers.
        if (std::isfinite(float(scale_ * rule_.growth_factor))) scale_ *= rule_.growth_factor;
        return ok();
    }
    good_steps_ = 0;
    scale_ *= rule_.backoff_factor;
    if (scale_ >= rule_.least) return ok();
    scale_ = rule_.least;
    return fail(error::train_loss_scale,
                "the loss scale would fall below {}, and gradients are still infinite or NaN: look for the first wrong "
                "value in the model, or set config.leastScale",
                rule_.least);
}

}  // namespace weft::internal::train
