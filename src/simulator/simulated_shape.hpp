// simulated_shape.hpp: the ranks, sizes and tiles of a simulated call.
#pragma once
#include <cstddef>
#include <cstdint>

#include "src/schedule/schedule.hpp"

namespace weft::internal {

struct SimulatedShape {
    int ranks = 1;   // in all
    int period = 1;  // the first `period` ranks are simulated
    size_t bytes = 0, tile_bytes = 0;
    bool even = false;  // every chunk counts as the mean of the sizes
    uint64_t tiles = 1;

    // Of the message or chunks of a step.
    double bytes_of(const Schedule& schedule, const Instruction& instruction, int32_t iteration, uint64_t tile) const {
        const size_t length = tile_length(bytes, tile_bytes, tile + uint64_t(instruction.tile));
        if (even) return double(instruction.count) * double(schedule.parts()) * double(length) / schedule.chunks;
        return double(chunk_span(instruction, iteration, length, schedule.chunks, schedule.parts()).bytes);
    }
};

}  // namespace weft::internal
