// later_settings.hpp: the settings of later calls, beside their arguments (weftCommSetCallConfig).
#pragma once
#include "src/comm/rank_context.hpp"

namespace weft::internal {

// Thread-bound to the rank, except that calls may be placed with get() while streams drive the communicator.
class LaterSettings {
  public:
    explicit LaterSettings(RankContext& context) : context_(context) {}

    Status set(int64_t timeout_ms, const char* algo, int channels, int priority);
    // Whether the planner knows these settings. If so, they may be set while streams drive the communicator.
    bool knows(const char* algo, int channels) const {
        return (!algo && channels < 0) || context_.planner.knows(algo_or_agreed(algo), channels_or_agreed(channels));
    }
    const CallSettings& get() const { return settings_; }

  private:
    std::string algo_or_agreed(const char* algo) const { return algo ? algo : context_.planner.agreed().algo; }
    int channels_or_agreed(int channels) const {
        return channels >= 0 ? channels : int(context_.planner.agreed().channels);
    }

    RankContext& context_;
    CallSettings settings_;
};

}  // namespace weft::internal
