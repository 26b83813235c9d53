// compressor.hpp: the compressing hook of a config.
#pragma once
#include <string>

#include "src/base/result.hpp"
#include "weft/train.h"

namespace weft::internal {

// The settings of a weftTrainCompressor_t for a new weftTrainDdp_t, as a text for the comparison of ranks.
Result<std::string> compressor_settings(void* compressor);
// Fails unless it is a hook for 1-bit LAMB with this momentum.
Status check_one_bit(weftTrainCompressor_t compressor, double momentum);

}  // namespace weft::internal
