// compressor.hpp: the compressing hook of a config.
#pragma once
#include <string>

#include "src/base/result.hpp"

namespace weft::internal {

// The settings of a weftTrainCompressor_t for a new weftTrainDdp_t, as a text for the comparison of ranks.
Result<std::string> compressor_settings(void* compressor);

}  // namespace weft::internal
