// optimizer_formulas.hpp: one step of each optimizer, on one element or on a vector of elements (Real).
// The CPU and GPU kernels share it. The coefficients are computed in double, once for each step.
#pragma once
#include "src/base/small_float.hpp"

namespace weft::internal {

// The work of a launch, or of a loop, on one part of a model.
enum class PartWork : int32_t {
    sgd,
    adam,
    lamb_norms,    // gives PartSums, and changes nothing
    lamb,          // with the layer's ratio
    layer_norms,   // gives PartSums
    measure,       // gives PartSums
    scale,         // multiplies the gradient
    frozen_norms,  // gives PartSums, and takes the gradient as momentum
    frozen,        // the step of 1-bit LAMB, with the layer's rate
};

// Of lamb_norms and layer_norms: the squared norms of the weights, and of the direction or of the gradient.
// Of measure: the sum of the elements' powers, or the largest one. The second one is 0 if all elements are finite.
// Of frozen_norms: the squared norms of the direction without and with the decay, and the largest ratio of the frozen
// denominator to the fresh one.
struct PartSums {
    double first, second, largest;
};

// SGD with momentum; LARS multiplies scale and decay by its ratio.
struct SgdStep {
    float scale = 1;     // of the gradient
    float decay = 0;     // of the weights, added to the gradient
    float momentum = 0;  // 0: no momentum is kept
    float damping = 1;   // of a gradient as it enters the momentum
    float rate = 0;
    bool nesterov = false;
};

// Adam; AdamW, which shrinks the weights; LAMB, which adds the weights to the direction.
struct AdamStep {
    float scale = 1;   // of the gradient
    float decay = 0;   // of the weights, added to the gradient (Adam) or to the direction (LAMB)
    float shrink = 1;  // of the weights (AdamW)
    float mix1 = 0;    // 1 - beta1
    float beta2 = 0;
    float mix2 = 0;        // 1 - beta2
    float rate = 0;        // the learning rate, without the bias of the first moment. LAMB: only the latter
    float root_scale = 1;  // takes the bias out of the root of the second moment
    float epsilon = 0;
};

// 1-bit LAMB with compressed momentum: the second moment is frozen, and a fresh one goes on.
struct FrozenStep {
    float scale = 1;  // of the momentum that was received
    float beta1 = 0, beta2 = 0, epsilon = 0, decay = 0;
    int32_t first = 0;  // 1: the fresh moment begins with the frozen one
};

template <class Real>
WEFT_INLINE constexpr void descend(const SgdStep& step, Real& value, Real gradient) {
    value -= (gradient * step.scale + value * step.decay) * step.rate;
}

template <class Real>
WEFT_INLINE constexpr void descend(const SgdStep& step, Real& value, Real& momentum, Real gradient) {
    const Real direction = gradient * step.scale + value * step.decay;
    momentum = momentum * step.momentum + direction * step.damping;
    value -= (step.nesterov ? direction + momentum * step.momentum : momentum) * step.rate;
}

template <class Real>
WEFT_INLINE constexpr void add_to_moments(const AdamStep& step, Real& first, Real& second, Real gradient) {
    first += (gradient - first) * step.mix1;
    second = second * step.beta2 + gradient * gradient * step.mix2;
}
// `root`: the square root, rounded once.
template <class Real, class Root>
WEFT_INLINE constexpr Real adam_direction(const AdamStep& step, Real first, Real second, Root root) {
    return first / (root(second) * step.root_scale + step.epsilon) * step.rate;
}
template <class Real, class Root>
WEFT_INLINE constexpr void adam(const AdamStep& step, Real& value, Real& first, Real& second, Real gradient,
                                Root root) {
    add_to_moments<Real>(step, first, second, gradient * step.scale + value * step.decay);
    value = value * step.shrink - adam_direction<Real>(step, first, second, root);
}
// Updates the moments; the caller keeps them only in the pass that changes the weights.
template <class Real, class Root>
WEFT_INLINE constexpr Real lamb_direction(const AdamStep& step, Real value, Real& first, Real& second, Real gradient,
                                          Root root) {
    add_to_moments<Real>(step, first, second, gradient * step.scale);
    return adam_direction<Real>(step, first, second, root) + value * step.decay;
}

// Facts about one element in a frozen step.
struct FrozenFacts {
    float adam, update, ratio;
};
// Keeps the momentum, and moves the fresh moment by the gradient that would have made it.
template <class Root>
WEFT_INLINE constexpr FrozenFacts frozen_facts(const FrozenStep& step, float value, float& first, float second,
                                               float& fresh, float momentum, Root root) {
    const float now = momentum * step.scale;
    const float gradient = (now - step.beta1 * first) / (1 - step.beta1);
    first = now;
    fresh = step.beta2 * (step.first != 0 ? second : fresh) + (1 - step.beta2) * gradient * gradient;
    const float frozen = root(second) + step.epsilon, adam = now / frozen;
    return {adam, adam + step.decay * value, frozen / (root(fresh) + step.epsilon)};
}
template <class Root>
WEFT_INLINE constexpr void descend_frozen(const FrozenStep& step, float rate, float& value, float first, float second,
                                          Root root) {
    value -= rate * (first / (root(second) + step.epsilon) + step.decay * value);
}

}  // namespace weft::internal
