#include "tools/tune_judgement.hpp"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <memory>

#include "src/registry.hpp"
#include "src/selector/selector.hpp"

namespace weft::internal::tools {
namespace {

// By algorithm: the best time of the passes.
using Cell = std::map<std::string, double>;
using Cells = std::map<std::pair<Collective, size_t>, Cell>;

Cells cells_of(const Arrangement& arrangement, bool held_out) {
    Cells cells;
    for (const TunedTime& time : arrangement.times) {
        if (time.held_out != held_out) continue;
        const auto [place, fresh] = cells[{time.collective, time.bytes}].emplace(time.algorithm, time.us);
        if (!fresh) place->second = std::min(place->second, time.us);
    }
    return cells;
}

void add_curves(const Arrangement& arrangement, std::vector<Tuning::Curve>& curves) {
    std::map<std::pair<Collective, std::string>, Tuning::Curve> by_algorithm;
    for (const auto& [what, cell] : cells_of(arrangement, false)) {
        for (const auto& [algorithm, us] : cell) {
            Tuning::Curve& curve = by_algorithm[{what.first, algorithm}];
            curve.collective = what.first;
            curve.algorithm = algorithm;
            curve.ranks = arrangement.ranks;
            curve.hosts = arrangement.hosts;
            if (arrangement.hosts < arrangement.ranks) curve.apart = arrangement.apart;
            curve.points.push_back({what.second, us});  // cells are in the order of bytes
        }
    }
    for (auto& [key, curve] : by_algorithm) curves.push_back(std::move(curve));
}

// The error of the model: the mean distance of the logarithms over all points.
// A single point counts for at most a factor of eight.
double misfit(const Tuning& tuning) {
    double sum = 0;
    size_t points = 0;
    for (const Tuning::Curve& curve : tuning.curves) {
        const Algorithm* row = registry::find_algorithm(curve.algorithm, curve.collective);
        if (!row) continue;
        const Layout layout = layout_in_blocks(curve.ranks, curve.hosts);
        const LinkCosts links = tuning.links_of(curve);
        for (const Tuning::Point& point : curve.points) {
            const double model = row->predicted_us(layout, links, point.bytes);
            sum += std::min(std::abs(std::log(model / point.us)), std::log(8.0));
            ++points;
        }
    }
    return points > 0 ? sum / double(points) : 0;
}

// Changes one constant after the other as long as the fit improves, by ever smaller factors.
void fit(Tuning& tuning) {
    constexpr double farthest = 16;
    double best = misfit(tuning);
    for (const double step : {2.0, 1.4, 1.2, 1.1, 1.05}) {
        for (const Tuning::Constant& constant : Tuning::constant_table()) {
            const double standard = tuning.built_in().*constant.member;
            for (const double factor : {step, 1 / step}) {
                double& value = tuning.constants.*constant.member;
                for (double kept = value;; kept = value) {
                    value *= factor;
                    const double fits = misfit(tuning);
                    if (fits < best && value < farthest * standard && value > standard / farthest) {
                        best = fits;
                        continue;
                    }
                    value = kept;
                    break;
                }
            }
        }
    }
}

Operation operation_of(Collective collective, size_t bytes, int ranks) {
    Operation operation;
    operation.collective = collective;
    operation.type = collective == Collective::barrier ? weftInt8 : weftFloat32;
    operation.op = weftSum;
    operation.root = 0;
    operation.count = bytes / size_of(weftDataType_t(operation.type)) / size_t(parts_of(collective, ranks));
    return operation;
}

// Accumulates the score over sizes.
class Score {
  public:
    void add(size_t bytes, const Cell& cell, const Choice& choice) {
        const auto best = std::min_element(
            cell.begin(), cell.end(), [](const auto& one, const auto& other) { return one.second < other.second; });
        const auto chosen = cell.find(choice.algorithm->name);
        // An algorithm that was too slow to be measured counts as slow as that limit.
        const double us =
            chosen == cell.end() ? std::max(choice.predicted.us, tune_far_behind * best->second) : chosen->second;
        const double ratio = std::max(1.0, us / best->second);
        logarithms_ += std::log(ratio);
        ++sizes_;
        if (ratio < worst_) return;
        worst_ = ratio;
        judged_.worst_bytes = bytes;
        judged_.worst_chosen = choice.algorithm->name;
        judged_.worst_best = best->first;
    }
    Judged finish() {
        judged_.mean_percent = sizes_ > 0 ? 100 * (std::exp(logarithms_ / sizes_) - 1) : 0;
        judged_.worst_percent = 100 * (worst_ - 1);
        return judged_;
    }

  private:
    double logarithms_ = 0, worst_ = 1;
    int sizes_ = 0;
    Judged judged_;
};

}  // namespace

Tuning tuning_of_times(Tuning here, const std::vector<Arrangement>& arrangements) {
    for (const Arrangement& arrangement : arrangements) add_curves(arrangement, here.curves);
    fit(here);
    return here;
}

Judgement judge(const Tuning& tuning, const Arrangement& arrangement, Collective collective) {
    const Layout layout = layout_in_blocks(arrangement.ranks, arrangement.hosts);
    const LinkCosts links = tuning.links_here(arrangement.ranks, arrangement.hosts);
    const Costs built_in(links), tuned(links, std::make_shared<const Tuning>(tuning));
    Score before, after;
    Judgement judgement;
    for (const auto& [what, cell] : cells_of(arrangement, true)) {
        if (collective != Collective::none && what.first != collective) continue;
        const Operation operation = operation_of(what.first, what.second, arrangement.ranks);
        const auto old_choice = select(operation, layout, built_in, {}, registry::algorithms());
        const auto new_choice = select(operation, layout, tuned, {}, registry::algorithms());
        if (!old_choice || !new_choice) continue;
        ++judgement.sizes;
        // The built-in costs' prediction of a time is no measurement; the tuning has the time.
        Choice old = *old_choice;
        old.predicted = predict(*old.algorithm, layout, tuned, what.second);
        before.add(what.second, cell, old);
        after.add(what.second, cell, *new_choice);
    }
    judgement.before = before.finish();
    judgement.after = after.finish();
    return judgement;
}

std::string judgement_text(const Tuning& tuning, const std::vector<Arrangement>& arrangements,
                           const std::vector<Collective>& collectives) {
    std::string text = fmt::format("{:>5}  {:9}  {:14}  {:>5}  {:>8}  {:>8}  {:>8}  {:>8}  {}\n", "ranks", "transport",
                                   "collective", "sizes", "before", "worst", "after", "worst", "the worst after");
    const auto line = [&](const Arrangement& arrangement, Collective collective, const char* name) {
        const Judgement judged = judge(tuning, arrangement, collective);
        if (judged.sizes == 0) return;
        text += fmt::format("{:5}  {:9}  {:14}  {:5}  {:7.1f}%  {:7.1f}%  {:7.1f}%  {:7.1f}%", arrangement.ranks,
                            arrangement.transport(), name, judged.sizes, judged.before.mean_percent,
                            judged.before.worst_percent, judged.after.mean_percent, judged.after.worst_percent);
        if (judged.after.worst_percent > 0)
            text += fmt::format("  {} bytes: {} chosen, {} best", judged.after.worst_bytes, judged.after.worst_chosen,
                                judged.after.worst_best);
        text += '\n';
    };
    for (const Arrangement& arrangement : arrangements) {
        for (const Collective collective : collectives) line(arrangement, collective, name_of(collective));
        if (collectives.size() > 1) line(arrangement, Collective::none, "all");
    }
    return text;
}

}  // namespace weft::internal::tools
