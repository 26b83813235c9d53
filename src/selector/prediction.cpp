#include "src/selector/prediction.hpp"

#include <algorithm>
#include <cmath>

namespace weft::internal {

namespace {

// Bounds the ratio of measured to modelled time that is applied to other numbers of ranks. A measurement that is further
// off, for example of a busy machine, must not decide for other layouts.
constexpr double correction_most = 8;

// For the curve's own layout. Beyond the measured sizes the model extrapolates from the nearest one.
double us_of(const Tuning::Curve& curve, const Algorithm& row, const Layout& layout, const LinkCosts& links,
             size_t bytes) {
    const size_t nearest = curve.within(bytes);
    const double measured = curve.us_at(nearest);
    return nearest == bytes
               ? measured
               : measured * row.predicted_us(layout, links, bytes) / row.predicted_us(layout, links, nearest);
}

bool equal_links(const LinkCosts& one, const LinkCosts& other) {
    return one.ranks_per_core == other.ranks_per_core && one.zero_copy_most_bytes == other.zero_copy_most_bytes;
}

}  // namespace

static Prediction exact(const Algorithm& row, const Layout& layout, const Costs& costs, size_t bytes) {
    if (row.of_user || !costs.tuning) return {row.predicted_us(layout, costs.links, bytes), Basis::model};
    const Tuning& tuning = *costs.tuning;
    const LinkCosts links = tuning.fitted(costs.links);
    const double model = row.predicted_us(layout, links, bytes);
    const bool known = layout.host_count() == 1 || tuning.of_network(costs.links);
    const Tuning::Curve* curve = known ? tuning.nearest(row.collective, row.name, layout) : nullptr;
    if (!curve) return {model, Basis::model};
    const Layout measured = layout_in_blocks(curve->ranks, curve->hosts);
    if (row.refusal(measured)) return {model, Basis::model};
    const LinkCosts its_links = tuning.links_of(*curve);
    const bool simulated = !tuning.simulated.empty();
    const Basis scaled = simulated ? Basis::scaled_simulated : Basis::scaled,
                known_so = simulated ? Basis::simulated : Basis::measured;
    const double its_us = us_of(*curve, row, measured, its_links, bytes);
    if (curve->ranks == layout.ranks && measured.hosts == layout.hosts && equal_links(links, its_links))
        return {its_us, curve->within(bytes) == bytes ? known_so : scaled};
    const double correction = its_us / row.predicted_us(measured, its_links, bytes);
    if (!std::isfinite(correction)) return {model, Basis::model};
    return {model * std::clamp(correction, 1 / correction_most, correction_most), scaled};
}

Prediction predict(const Algorithm& row, const Layout& layout, const Costs& costs, size_t bytes) {
    Prediction found = exact(row, layout, costs, bytes);
    // Rounds to float, so that algorithms of equal cost compare equal and the first one is chosen.
    found.us = double(float(found.us));
    return found;
}

}  // namespace weft::internal
