#include "src/train/optimizer/one_bit_lamb.hpp"

#include <algorithm>
#include <cmath>

namespace weft::internal::train {

namespace {

struct FrozenSums {
    double adam = 0, update = 0;  // squares of the update, without and with the decay
    double ratio = 0;             // the largest one of the frozen denominator to the fresh one
};

// The fresh moment goes on with the gradient that would have made this momentum.
void add_block(const FrozenStep& step, const float* momentum, const float* values, const FrozenMoments& at,
               size_t count, FrozenSums& sums) {
    const auto beta1 = float(step.beta1), beta2 = float(step.beta2), epsilon = float(step.epsilon);
    for (size_t i = 0; i < count; ++i) {
        const float now = momentum[i] * float(step.scale);
        const float gradient = (now - beta1 * at.first[i]) / (1 - beta1);
        at.first[i] = now;
        at.fresh[i] = beta2 * at.fresh[i] + (1 - beta2) * gradient * gradient;
        const float frozen = std::sqrt(at.second[i]) + epsilon;
        const float adam = now / frozen, update = adam + float(step.decay) * values[i];
        sums.adam += double(adam) * double(adam);
        sums.update += double(update) * double(update);
        sums.ratio = std::max(sums.ratio, double(frozen / (std::sqrt(at.fresh[i]) + epsilon)));
    }
}

double factor_of(const FrozenStep& step, const TrustRule& rule, const FrozenSums& sums, double before) {
    double factor = sums.ratio;
    if (step.decay > 0 && sums.update > 0) {
        const double share = std::min(1.0, std::sqrt(sums.adam / sums.update));
        factor = factor * share + (1 - share);
    }
    factor = std::clamp(factor, rule.least_factor, rule.most_factor);
    return std::clamp(factor, before * (1 - rule.change), before * (1 + rule.change));
}

}  // namespace

double warm_ratio(const TrustRule& rule, double ratio, Trust& trust) {
    // Of a layer without norms.
    if (ratio == 1) return ratio;
    ratio = std::clamp(ratio, rule.least, rule.most);
    trust.mean = rule.mean * trust.mean + (1 - rule.mean) * ratio;
    return ratio;
}

void step_frozen(const FrozenStep& step, const TrustRule& rule, const ModelPart& part, const FrozenMoments& moments,
                 Trust& trust) {
    float scratch[block_elements];
    if (trust.factor == 0) {
        std::copy_n(moments.second, part.count, moments.fresh);
        trust.factor = 1;
    }
    FrozenSums sums;
    for_each_block(part.count, [&](size_t first, size_t count) {
        add_block(step, read_block(part.gradient, part.gradient_type, first, count, scratch), part.values + first,
                  {moments.first + first, moments.second + first, moments.fresh + first}, count, sums);
    });
    if (part.count > 0) trust.factor = factor_of(step, rule, sums, trust.factor);
    const auto rate = float(step.rate * (trust.mean > 0 ? trust.mean : 1) * trust.factor);
    const auto epsilon = float(step.epsilon), decay = float(step.decay);
    for_each_block(part.count, [&](size_t first, size_t count) {
        float* const values = part.values + first;
        const float *const momentum = moments.first + first, *const second = moments.second + first;
        for (size_t i = 0; i < count; ++i)
            values[i] -= rate * (momentum[i] / (std::sqrt(second[i]) + epsilon) + decay * values[i]);
        if (part.copy) write_block(part.copy, part.copy_type, first, count, values);
    });
}

}  // namespace weft::internal::train
