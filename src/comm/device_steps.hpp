// device_steps.hpp: the algorithms of the registry that step machines run on the devices of a communicator: from agreed
// facts alone, so that all ranks have the same. Knows no driver. Reentrant.
#pragma once
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "src/executor/cuda/connections.hpp"

namespace weft {

struct StepAlgorithm {
    const Algorithm* algorithm = nullptr;
    Parameters parameters;
    int blocks = 1;              // of each rank's kernel
    int at_once = 1;             // that share a message and work at the same time
    size_t most_tile_bytes = 0;  // that slots hold

    LinkCosts costs() const;
    // Of a message; `wanted`: WEFT_TILE_BYTES or 0. A multiple of 64.
    size_t tile_bytes(int ranks, size_t bytes, size_t wanted) const;
};

struct StepAlgorithms {
    std::vector<StepAlgorithm> rows;  // in the registry's order
    std::string excluded;             // of those that WEFT_ALGO allows, which are out and why
    cuda::Connections connections;    // of the rows
};

// algo, channels: rank 0's WEFT_ALGO and WEFT_CHANNELS. blocks_max: of a rank's kernel.
StepAlgorithms step_algorithms(int ranks, int blocks_max, const std::string& algo, int channels);

}  // namespace weft
