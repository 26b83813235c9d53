#include "src/train/optimizer/one_bit_lamb.hpp"

#include <algorithm>
#include <cmath>

namespace weft::internal::train {

double warm_ratio(const TrustRule& rule, double ratio, Trust& trust) {
    // Of a layer without norms.
    if (ratio == 1) return ratio;
    ratio = std::clamp(ratio, rule.least, rule.most);
    trust.mean = rule.mean * trust.mean + (1 - rule.mean) * ratio;
    return ratio;
}

double frozen_factor(const TrustRule& rule, double decay, const PartSums& sums, double before) {
    double factor = sums.largest;
    if (decay > 0 && sums.second > 0) {
        const double share = std::min(1.0, std::sqrt(sums.first / sums.second));
        factor = factor * share + (1 - share);
    }
    factor = std::clamp(factor, rule.least_factor, rule.most_factor);
    return std::clamp(factor, before * (1 - rule.change), before * (1 + rule.change));
}

}  // namespace weft::internal::train
