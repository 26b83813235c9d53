// optimizer_formulas.hpp: one step of each optimizer, on one element or on a vector of elements (Real).
// The CPU and GPU kernels share it. The coefficients are computed in double, once for each step.
#pragma once
#include "src/base/small_float.hpp"

namespace weft::internal {

// The work of a launch, or of a loop, on one part of a model.
enum class PartWork : int32_t {
    sgd,
    adam,
    lamb_norms,   // gives PartSums, and changes nothing
    lamb,         // with the layer's ratio
    layer_norms,  // gives PartSums
    measure,      // gives PartSums
    scale         // multiplies the gradient
};

// Of lamb_norms and layer_norms: the squared norms of the weights, and of the direction or of the gradient.
// Of measure: the sum of the elements' powers, or the largest one. The second one is 0 if all elements are finite.
struct PartSums {
    double first, second;
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

}  // namespace weft::internal
