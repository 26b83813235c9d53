// compressor_settings.hpp: the settings of a compressing hook. Values.
#pragma once
#include <cstdint>
#include <string>

#include "weft/train.h"

namespace weft::internal::train {

struct CompressorSettings {
    weftTrainCompression_t method = weftTrainPowerSgd;
    bool error_feedback = true;
    uint64_t start_iteration = 0;  // before it gradients are averaged exactly
    size_t rank = 1;               // PowerSGD
    double least_rate = 2;
    bool warm_start = true;
    uint64_t seed = 0;
    double density = 0.01;  // top-k
    size_t block = 256;     // int8
    double momentum = 0.9;  // 1-bit
    weftDataType_t float8 = weftFloat8e4m3;
    bool layer_scales = false;  // 1-bit
};
// As a text that is equal on all ranks.
std::string described(const CompressorSettings& settings);
// Of random numbers: equal on all ranks, and different for each parameter and iteration.
uint64_t seed_of(const CompressorSettings& settings, int parameter, uint64_t iteration);

}  // namespace weft::internal::train
