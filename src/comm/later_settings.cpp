#include "src/comm/later_settings.hpp"

#include <algorithm>

namespace weft::internal {

Status LaterSettings::set(int64_t timeout_ms, const char* algo, int channels, int priority) {
    CallSettings settings{timeout_ms < 0 ? -1 : std::min(timeout_ms, INT64_MAX / 1000), 0, priority};
    if (algo || channels >= 0) {
        const std::string wanted = algo_or_agreed(algo);
        const int wanted_channels = channels_or_agreed(channels);
        const bool fresh = !context_.planner.knows(wanted, wanted_channels);
        auto preference = context_.planner.preference(wanted, wanted_channels);
        if (!preference) return preference.take_status();
        settings.preference = *preference;
        if (fresh && context_.device)
            context_.device->collectives().prefer(settings.preference, wanted, wanted_channels);
    }
    settings_ = settings;
    return ok();
}

}  // namespace weft::internal
