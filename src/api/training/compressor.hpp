// compressor.hpp: the compressing hook of a config.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "src/base/result.hpp"
#include "src/train/bucket_layout.hpp"
#include "weft/train.h"

namespace weft::internal {

// The settings of a weftTrainCompressor_t for a new weftTrainDdp_t, as a text for the comparison of ranks. Fails if it
// cannot serve a model of these parameters.
Result<std::string> compressor_settings(void* compressor, std::span<const train::TensorFacts> parameters);
// For a model on this device, or in host memory (-1). Fails if the device lacks the kernels.
Status prepare_compressor(void* compressor, int device);
// It serves the object with this life from now on.
Status serve_by_compressor(void* compressor, const std::shared_ptr<const char>& life,
                           std::span<const train::TensorFacts> parameters);
// Fails unless it is a hook for 1-bit LAMB with this momentum.
Status check_one_bit(weftTrainCompressor_t compressor, double momentum);

}  // namespace weft::internal
