#include "src/train/reports.hpp"

#include <algorithm>

namespace weft::internal::train {

Reports::Reports(size_t parameters, bool static_graph)
    : expected_(parameters, 1),
      reported_(parameters, 0),
      used_(parameters, 0),
      last_report_(parameters, 0),
      recording_(static_graph) {}

void Reports::begin() {
    reported_.assign(reported_.size(), 0);
    reports_ = 0;
    outstanding_ = expected_.size() - size_t(std::count(expected_.begin(), expected_.end(), 0));
}

Status Reports::refused(int parameter, const std::string& name) const {
    const int reported = reported_[size_t(parameter)];
    if (expected(parameter) == 0)
        return fail(error::train_static_graph,
                    "the gradient of parameter {}, \"{}\", was reported, but not in the first iteration: with "
                    "config.staticGraph all iterations report the same gradients",
                    parameter, name);
    return fail(error::train_reported_twice,
                "the gradient of parameter {}, \"{}\", was reported {} in this iteration: report a gradient when its "
                "last part is written",
                parameter, name, reported == 1 ? "twice" : fmt::format("{} times", reported + 1));
}

std::vector<int> Reports::missing() const {
    std::vector<int> missing;
    for (size_t i = 0; i < expected_.size(); ++i)
        if (reported_[i] < expected_[i]) missing.push_back(int(i));
    return missing;
}

void Reports::end_recording() {
    expected_ = reported_;
    recording_ = false;
}

std::vector<int> Reports::order() const {
    std::vector<int> order;
    for (size_t i = 0; i < reported_.size(); ++i)
        if (reported_[i] > 0) order.push_back(int(i));
    std::sort(order.begin(), order.end(),
              [&](int left, int right) { return last_report_[size_t(left)] < last_report_[size_t(right)]; });
    for (size_t i = reported_.size(); i-- > 0;)
        if (reported_[i] == 0) order.push_back(int(i));
    return order;
}

void FullBuckets::begin(const BucketLayout& layout) {
    layout_ = &layout;
    ready_.assign(layout.places.size(), 0);
    unready_ = layout.places.size();
    missing_.clear();
    for (const Bucket& bucket : layout.buckets) missing_.push_back(bucket.parameters.size());
    next_ = 0;
}

int FullBuckets::take() { return next_ < missing_.size() && missing_[next_] == 0 ? int(next_++) : -1; }

}  // namespace weft::internal::train
