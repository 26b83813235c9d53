#include "src/train/optimizer/gradient_norms.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "src/kernels/cpu_kernels.hpp"

namespace weft::internal::train {

namespace {

// The largest magnitude, or NaN if there is any.
double largest_of(const float* block, size_t count, double largest) {
    for (size_t i = 0; i < count; ++i) {
        const double magnitude = std::fabs(double(block[i]));
        if (!(magnitude <= largest) && !std::isnan(largest)) largest = magnitude;
    }
    return largest;
}

double powers_of(const float* block, size_t count, double p) {
    if (p == 2) return cpu_kernels().optimizers.squares(block, count);
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
        const double magnitude = std::fabs(double(block[i]));
        sum += p == 1 ? magnitude : std::pow(magnitude, p);
    }
    return sum;
}

// The sum of the elements' powers, or the largest element, of one gradient.
double powers_of(const ModelPart& part, double p) {
    alignas(64) float scratch[block_elements];
    double result = 0;
    for_each_block(part.count, [&](size_t first, size_t count) {
        const float* const block = read_block(part.gradient, part.gradient_type, first, count, scratch);
        result = std::isinf(p) ? largest_of(block, count, result) : result + powers_of(block, count, p);
    });
    return result;
}

}  // namespace

Result<double> gradient_norm(std::span<const ModelPart> parts, const Axes& axes, double p) {
    std::map<uint32_t, double> by_axes;
    const auto join = [p](double left, double right) {
        if (!std::isinf(p)) return left + right;
        return std::isnan(left) || std::isnan(right) ? NAN : std::max(left, right);
    };
    for (const ModelPart& part : parts) {
        double& sum = by_axes[part.axes];  // also without elements: all ranks send equally many numbers
        if (part.gradient) sum = join(sum, powers_of(part, p));
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

void scale_gradients(std::span<const ModelPart> parts, double factor) {
    alignas(64) float scratch[block_elements];
    const float factor_as_float = float(factor);
    for (const ModelPart& part : parts) {
        if (!part.gradient) continue;
        for_each_block(part.count, [&](size_t first, size_t count) {
            const float* const block = read_block(part.gradient, part.gradient_type, first, count, scratch);
            cpu_kernels().scale[weftFloat32](scratch, block, count, &factor_as_float);
            write_block(part.gradient, part.gradient_type, first, count, scratch);
        });
    }
}

bool gradients_finite(std::span<const ModelPart> parts) {
    alignas(64) float scratch[block_elements];
    bool finite = true;
    for (const ModelPart& part : parts) {
        if (!part.gradient) continue;
        for_each_block(part.count, [&](size_t first, size_t count) {
            const float* const block = read_block(part.gradient, part.gradient_type, first, count, scratch);
            finite = finite && cpu_kernels().optimizers.all_finite(block, count);
        });
    }
    return finite;
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
