// later_settings.hpp: the settings of later calls, beside their arguments (weftCommSetCallConfig).
#pragma once
#include <algorithm>

#include "src/comm/rank_context.hpp"

namespace weft::internal {

// Thread-bound to the rank, except that calls may be placed with get() while streams drive the communicator.
class LaterSettings {
  public:
    explicit LaterSettings(RankContext& context) : context_(context) {}

    // A field of WEFT_CONFIG_UNDEF_INT, or a negative timeout, is undefined. The numbers have been checked.
    Status set(const weftCallConfig_t& config);
    // Whether the planner knows these settings. If so, they may be set while streams drive the communicator.
    bool knows(const weftCallConfig_t& config) const {
        return !prefers(config) || context_.planner.knows(preference_of(config));
    }
    const CallSettings& get() const { return settings_; }

  private:
    static bool prefers(const weftCallConfig_t& config) {
        return config.algo || config.channels >= 0 || blocks_of(config) != BlockLimits();
    }
    static BlockLimits blocks_of(const weftCallConfig_t& config) {
        return {std::max(config.minBlocks, 0), std::max(config.maxBlocks, 0)};
    }
    CallPreference preference_of(const weftCallConfig_t& config) const {
        const AgreedOptions& agreed = context_.planner.agreed();
        return {config.algo ? config.algo : agreed.algo, config.channels >= 0 ? config.channels : int(agreed.channels),
                blocks_of(config)};
    }

    RankContext& context_;
    CallSettings settings_;
};

}  // namespace weft::internal
