// call_settings.hpp: settings of a call beside its arguments (weftCommSetCallConfig). A value.
#pragma once
#include <cstdint>

#include "weft/types.h"

namespace weft::internal {

struct CallSettings {
    int64_t timeout_ms = -1;  // negative: the communicator's
    uint8_t preference = 0;   // see Planner and GpuEngine::prefer()
    int priority = WEFT_CONFIG_UNDEF_INT;
};

}  // namespace weft::internal
