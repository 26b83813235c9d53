#include "src/comm/later_settings.hpp"

namespace weft::internal {

Status LaterSettings::set(const weftCallConfig_t& config) {
    CallSettings settings{.timeout_ms = config.timeoutMs < 0 ? -1 : std::min(config.timeoutMs, INT64_MAX / 1000),
                          .priority = config.priority,
                          .block_policy = config.blockPolicy,
                          .blocks = blocks_of(config)};
    if (prefers(config)) {
        const CallPreference wanted = preference_of(config);
        const bool fresh = !context_.planner.knows(wanted);
        auto preference = context_.planner.preference(wanted);
        if (!preference) return preference.take_status();
        settings.preference = *preference;
        if (fresh && context_.device) context_.device->collectives().prefer(settings.preference, wanted);
    }
    settings_ = settings;
    return ok();
}

}  // namespace weft::internal
