#include "regret.hpp"

#include <fmt/format.h>

#include <cmath>

namespace perf {

RegretRow regret_of(Row setting, const Candidates& candidates, const std::vector<std::vector<double>>& times,
                    double calls) {
    RegretRow row;
    row.setting = std::move(setting);
    for (size_t i = 0; i < candidates.names.size(); ++i)
        row.all.push_back({candidates.names[i], lower_decile(times[i]) / calls});
    for (const Timed& one : row.all) {
        if (one.algorithm == candidates.chosen) row.chosen = one;
        if (row.best.algorithm.empty() || one.us < row.best.us) row.best = one;
    }
    return row;
}

Regret summarize(const std::vector<RegretRow>& rows) {
    Regret regret;
    double logarithms = 0, worst = 0;
    for (const RegretRow& row : rows) {
        logarithms += std::log(row.ratio()) / double(rows.size());
        if (row.ratio() <= worst) continue;
        worst = row.ratio();
        regret.worst_percent = 100 * (worst - 1);
        regret.worst =
            fmt::format("{} bytes: {} chosen, {} best", row.setting.bytes, row.chosen.algorithm, row.best.algorithm);
    }
    regret.mean_percent = 100 * (std::exp(logarithms) - 1);
    return regret;
}

std::string regret_header() {
    const auto line = [](const char* first, const char* second, const char* third, const char* fourth,
                         const char* fifth, const char* chosen, const char* best, const char* us, const char* ratio) {
        return fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {:>26}  {:>10}  {:>26}  {:>10}  {:>6}", first,
                           second, third, fourth, fifth, chosen, us, best, us, ratio);
    };
    return "#\n" + line("size", "count", "type", "redop", "root", "chosen", "best", "time", "ratio") +
           "  every candidate and its time\n" + line("(B)", "(elements)", "", "", "", "", "", "(us)", "") + "  (us)\n";
}

std::string regret_text(const RegretRow& row) {
    std::string text =
        fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:6}  {:>26}  {:10.2f}  {:>26}  {:10.2f}  {:6.3f} ", row.setting.bytes,
                    row.setting.count, row.setting.element->name, row.setting.reduction->name, row.setting.root,
                    row.chosen.algorithm, row.chosen.us, row.best.algorithm, row.best.us, row.ratio());
    for (const Timed& one : row.all) text += fmt::format(" {} {:.2f}", one.algorithm, one.us);
    return text + "\n";
}

std::string regret_footer(const Regret& regret) {
    return fmt::format("# {:<20} : mean {:.1f} % | worst {:.1f} % ({})\n", "Regret", regret.mean_percent,
                       regret.worst_percent, regret.worst);
}

}  // namespace perf
