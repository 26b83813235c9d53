// one_bit_lamb.hpp: the rest of 1-bit LAMB besides LAMB and FrozenStep: ratios that are kept when momentum is compressed.
// Source: Li et al., "1-bit LAMB", HiPC 2022, with the constants of DeepSpeed.
#pragma once
#include "src/kernels/optimizer_formulas.hpp"

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

// The factor of a compressed step; `before` is that of the step before. `sums`: of frozen_norms.
double frozen_factor(const TrustRule& rule, double decay, const PartSums& sums, double before);

}  // namespace weft::internal::train
