// call_settings.hpp: settings of a call beside its arguments (weftCommSetCallConfig). A value.
#pragma once
#include <cstdint>
#include <string>

#include "weft/types.h"

namespace weft::internal {

// Blocks of a kernel on device memory; 0: not given.
struct BlockLimits {
    int least = 0, most = 0;
    bool operator==(const BlockLimits&) const = default;
};

// The settings that all ranks must give alike. A communicator numbers its different ones (CallSettings::preference).
struct CallPreference {
    std::string algo;  // as in WEFT_ALGO
    int channels = 0;
    BlockLimits blocks = {};
    bool operator==(const CallPreference&) const = default;
};

struct CallSettings {
    int64_t timeout_ms = -1;  // negative: the communicator's
    uint8_t preference = 0;   // see Planner and GpuEngine::prefer()
    int priority = WEFT_CONFIG_UNDEF_INT;
    int block_policy = WEFT_CONFIG_UNDEF_INT;  // equal on all ranks; undefined: the communicator's
    BlockLimits blocks = {};                   // also of kernels that no preference is for: messages, one-sided calls
};

}  // namespace weft::internal
