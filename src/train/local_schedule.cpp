#include "src/train/local_schedule.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>

namespace weft::internal::train {

std::string described(const LocalSettings& settings) {
    std::string text = fmt::format(
        "the settings method {}, warmup {}, period {}, fragments {}, delay {}, learningRate {}, momentum {}, mix {}, "
        "and a model in {} memory",
        settings.outer ? "DiLoCo" : "average", settings.warmup, settings.period, settings.fragments, settings.delay,
        settings.learning_rate, settings.momentum, settings.mix, settings.on_device ? "device" : "host");
    for (size_t i = 0; i < settings.fragment_of.size(); ++i)
        text += fmt::format("{}{}", i == 0 ? ", fragmentOf " : " ", settings.fragment_of[i]);
    return text + "\n";
}

bool averages(const LocalSettings& settings, uint64_t step) {
    return step >= settings.warmup && (step - settings.warmup) % settings.period == 0;
}

int launched_after(const LocalSettings& settings, uint64_t steps) {
    const uint64_t apart = settings.period / uint64_t(settings.fragments);
    if (steps == 0 || steps % apart != 0) return -1;
    return int((steps / apart - 1) % uint64_t(settings.fragments));
}

int applied_after(const LocalSettings& settings, uint64_t steps) {
    return steps < settings.delay ? -1 : launched_after(settings, steps - settings.delay);
}

int open_after(const LocalSettings& settings, uint64_t steps) {
    const uint64_t since_launch = steps % (settings.period / uint64_t(settings.fragments));
    return since_launch < settings.delay ? launched_after(settings, steps - since_launch) : -1;
}

FragmentLayout lay_out_fragments(const LocalSettings& settings, std::span<const TensorFacts> tensors) {
    size_t total = 0, before = 0;
    for (const TensorFacts& tensor : tensors) total += tensor.count;
    std::map<std::pair<int, weftDataType_t>, std::vector<int>> together;
    for (size_t i = 0; i < tensors.size(); ++i) {
        const size_t share = total == 0 ? 0 : size_t(double(before) / double(total) * settings.fragments);
        const int contiguous = int(std::min(share, size_t(settings.fragments - 1)));
        const int fragment = settings.fragment_of.empty() ? contiguous : settings.fragment_of[i];
        together[{fragment, tensors[i].type}].push_back(int(i));
        before += tensors[i].count;
    }
    FragmentLayout layout;
    std::vector<std::vector<int>> assignment;
    for (auto& [key, parameters] : together) {
        layout.fragment_of.push_back(key.first);
        assignment.push_back(std::move(parameters));
    }
    layout.buckets = lay_out(tensors, assignment);
    return layout;
}

}  // namespace weft::internal::train
