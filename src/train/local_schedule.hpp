// local_schedule.hpp: which steps of local training communicate, and which fragment of the model they send. Values.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/train/bucket_layout.hpp"

namespace weft::internal::train {

struct LocalSettings {
    bool outer = false;   // DiLoCo; else the parameters are averaged
    uint64_t warmup = 0;  // steps before the first average
    uint64_t period = 1;  // steps between two reductions of one parameter
    int fragments = 1;
    uint64_t delay = 0;  // steps between the launch and the use of a reduction
    double learning_rate = 0.7, momentum = 0.9;
    double mix = 0;  // the share of the local values in the result
    bool on_device = false;
    std::vector<int> fragment_of;  // each parameter's; empty: contiguous, of about equal counts
};

// Settings that all ranks have, as text.
std::string described(const LocalSettings& settings);

// Whether the step with this number, from 0, averages the parameters.
bool averages(const LocalSettings& settings, uint64_t step);
// The fragment whose reduction begins after this many steps; -1: none.
int launched_after(const LocalSettings& settings, uint64_t steps);
// The fragment whose reduction is used after this many steps; -1: none.
int applied_after(const LocalSettings& settings, uint64_t steps);
// The fragment that was launched and is not used yet after this many steps; -1: none.
int open_after(const LocalSettings& settings, uint64_t steps);

// Each fragment has one bucket for each type, which one all-reduce sends.
struct FragmentLayout {
    BucketLayout buckets;
    std::vector<int> fragment_of;  // each bucket's
};
FragmentLayout lay_out_fragments(const LocalSettings& settings, std::span<const TensorFacts> tensors);

}  // namespace weft::internal::train
