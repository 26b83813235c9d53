#include "tools/rdma_figures.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace weft::internal::tools {

void RdmaFigures::begin_run() {
    ++runs_;
    run_.clear();
}

void RdmaFigures::add(const std::string& name, double value) {
    run_[name] = value;
    all_[name].push_back(value);
}

std::string RdmaFigures::run_text() const {
    std::string text;
    for (const auto& [name, value] : run_) text += fmt::format("{} {} {:.6g}", text.empty() ? "" : ",", name, value);
    return text;
}

double RdmaFigures::median_of(const std::string& name) const {
    const auto found = all_.find(name);
    if (found == all_.end()) return 0;
    std::vector<double> values = found->second;
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

size_t RdmaFigures::runs_with(const std::string& name) const {
    const auto found = all_.find(name);
    return found == all_.end() ? 0 : found->second.size();
}

std::string RdmaFigures::lack_text(const std::string& name) const {
    const size_t count = runs_with(name);
    return count == 0 || count == size_t(runs_) ? "" : fmt::format(", {} of {} runs", count, runs_);
}

}  // namespace weft::internal::tools
