// one_bit_lamb.hpp: the rest of 1-bit LAMB besides LAMB: ratios that are kept when momentum is compressed, and its frozen step.
// Source: Li et al., "1-bit LAMB", HiPC 2022, with the constants of DeepSpeed.
#pragma once
#include "src/train/optimizer/parts.hpp"

namespace weft::internal::train {

struct TrustRule {
    double least = 0.01, most = 10;              // of a layer's ratio, before compression
    double mean = 0.9;                           // the mean ratio keeps so much of its old value
    double least_factor = 0.5, most_factor = 4;  // of the mean ratio, during compression
    double change = 0.1;                         // of the factor in a step, as a share of it
};

// Of a layer.
struct Trust {
    double mean = 0;    // ratio of the steps before compression; 0: none was known
    double factor = 0;  // of the newest compressed step; 0: there was none
};

// The ratio of a step before compression. `ratio`: |weights| / |update|, or 1 if one of them is 0.
double warm_ratio(const TrustRule& rule, double ratio, Trust& trust);

struct FrozenStep {
    double beta1, beta2, epsilon, decay;
    double rate;   // the learning rate
    double scale;  // of the momentum that was received
};

// The moments of a part: the momentum of the step before, the frozen second moment, and one that goes on.
struct FrozenMoments {
    float *first, *second, *fresh;
};

// A step with the part's gradient as momentum. Host memory.
void step_frozen(const FrozenStep& step, const TrustRule& rule, const ModelPart& part, const FrozenMoments& moments,
                 Trust& trust);

}  // namespace weft::internal::train
