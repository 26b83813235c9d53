// reports.hpp: which gradients of an iteration were reported, and which buckets are full. No communication.
#pragma once
#include <cstdint>
#include <vector>

#include "src/base/result.hpp"
#include "src/train/bucket_layout.hpp"

namespace weft::internal::train {

// The reports of each parameter. Thread-bound.
class Reports {
  public:
    // With a static graph the first iteration that synchronises records how often each parameter is reported.
    Reports(size_t parameters, bool static_graph);

    void begin();
    // `name` is the parameter's, for the error.
    Status report(int parameter, const std::string& name) {
        int& reported = reported_[size_t(parameter)];
        if (!recording_ && reported >= expected(parameter)) [[unlikely]]
            return refused(parameter, name);
        if (++reported == expected(parameter)) --outstanding_;
        last_report_[size_t(parameter)] = reports_++;
        used_[size_t(parameter)] = 1;
        return ok();
    }
    // Whether further reports of the parameter are neither expected nor allowed.
    bool complete(int parameter) const { return !recording_ && reported_[size_t(parameter)] >= expected(parameter); }
    // The parameters that are not complete. While it records: those without a report.
    std::vector<int> missing() const;
    bool any_missing() const { return outstanding_ > 0; }
    // Whether the parameter was reported since the last clear_used(), in this iteration or an earlier one.
    bool used(int parameter) const { return used_[size_t(parameter)] != 0; }
    void clear_used() { used_.assign(used_.size(), 0); }
    bool recording() const { return recording_; }
    void end_recording();
    // How many reports of the parameter an iteration has.
    int expected(int parameter) const { return expected_[size_t(parameter)]; }
    // The parameters of this iteration in the order of their last reports, then the rest, the last one first.
    std::vector<int> order() const;

  private:
    Status refused(int parameter, const std::string& name) const;

    std::vector<int> expected_, reported_;
    std::vector<uint8_t> used_;
    std::vector<int> last_report_;  // of each parameter, among the reports of the iteration
    int reports_ = 0;
    size_t outstanding_ = 0;  // parameters with fewer reports than expected
    bool recording_;
};

// Facts of the first iteration that synchronises, for the rebuild of the buckets.
struct FirstIteration {
    bool ended = false;
    std::vector<int> order;  // its reports
    int source = -1;         // the rank whose order counts at the rebuild, which is still to come; or -1
};

// Full buckets, in the order of their index. Thread-bound.
class FullBuckets {
  public:
    // No gradient is ready.
    void begin(const BucketLayout& layout);
    // Whether the parameter's bucket is full now.
    bool ready(int parameter) {
        ready_[size_t(parameter)] = 1;
        --unready_;
        return --missing_[size_t(layout_->places[size_t(parameter)].bucket)] == 0;
    }
    bool is_ready(int parameter) const { return ready_[size_t(parameter)] != 0; }
    bool all_ready() const { return unready_ == 0; }
    // The next bucket, once it and all buckets before it are full; else -1.
    int take();
    bool all_taken() const { return next_ == missing_.size(); }

  private:
    const BucketLayout* layout_ = nullptr;
    std::vector<size_t> missing_;  // gradients of each bucket
    std::vector<uint8_t> ready_;
    size_t unready_ = 0;  // gradients of all buckets
    size_t next_ = 0;
};

}  // namespace weft::internal::train
