#include "src/train/hooks/compressor_settings.hpp"

#include <fmt/format.h>

#include "src/base/datatype.hpp"

namespace weft::internal::train {

std::string described(const CompressorSettings& settings) {
    return fmt::format(
        "compress with method {}, startIteration {}, errorFeedback {}, rank {}, leastRate {}, warmStart {}, seed {}, "
        "density {}, blockCount {}, momentum {}, float8 {}, layerScales {}",
        int(settings.method), settings.start_iteration, int(settings.error_feedback), settings.rank,
        settings.least_rate, int(settings.warm_start), settings.seed, settings.density, settings.block,
        settings.momentum, name_of(settings.float8), int(settings.layer_scales));
}

uint64_t seed_of(const CompressorSettings& settings, int parameter, uint64_t iteration) {
    return (settings.seed * 0x9e3779b97f4a7c15u + uint64_t(parameter)) * 0xbf58476d1ce4e5b9u + iteration * 1009;
}

}  // namespace weft::internal::train
