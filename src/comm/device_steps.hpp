// device_steps.hpp: the algorithms of the registry that step machines run on the devices of a communicator: from agreed
// facts alone, so that all ranks have the same. Knows no driver. Reentrant.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "src/executor/cuda/connections.hpp"

namespace weft {

struct StepAlgorithm {
    const Algorithm* algorithm = nullptr;
    Parameters parameters;
    Layout layout;               // as rank 0 sees it
    int64_t link_mbps = 0;       // of several hosts: the slowest network; 0: unknown
    int blocks = 1;              // of each rank's kernel
    int at_once = 1;             // that share a message and work at the same time
    size_t most_tile_bytes = 0;  // that slots hold

    LinkCosts costs() const;
    double predicted_us(size_t bytes) const { return algorithm->predicted_us(layout, costs(), bytes); }
    // Of a message; `wanted`: WEFT_TILE_BYTES or 0. A multiple of 64.
    size_t tile_bytes(size_t bytes, size_t wanted) const;
};

struct StepAlgorithms {
    std::vector<StepAlgorithm> rows;  // in the order of the rows given
    std::string excluded;             // of those that WEFT_ALGO allows, which are out and why
    cuda::Connections connections;    // of the rows
};

// rows, which must outlive what is made of them; layout: as rank 0 sees it. algo, channels: rank 0's WEFT_ALGO and
// WEFT_CHANNELS. blocks_max: of a rank's kernel.
StepAlgorithms step_algorithms(std::span<const Algorithm> rows, const Layout& layout, int blocks_max,
                               const std::string& algo, int channels, int64_t link_mbps = 0);

}  // namespace weft
