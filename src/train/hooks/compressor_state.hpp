// compressor_state.hpp: the state that a compressor keeps for each parameter, and its form as bytes. Values.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "src/base/result.hpp"
#include "weft/train.h"

namespace weft::internal::train {

// The state for one parameter. Vectors that the method does not use are empty.
struct CompressorState {
    uint64_t iterations = 0;
    size_t count = 0;             // elements of the parameter
    std::vector<float> error;     // the numbers that this rank has not sent yet
    std::vector<float> momentum;  // equal on all ranks
    std::vector<float> right;     // PowerSGD's factor of the last iteration, equal on all ranks; zeros: there was none
    // This rank adds up the messages for the elements from sum_begin on. The rest of their sums that it has not sent.
    size_t sum_begin = 0;
    std::vector<float> sum_error;
    double scale = 0;  // of the momentum in messages, equal on all ranks; 0: not known yet
};

// The bytes of so many states with so many numbers in all.
size_t state_bytes(size_t states, size_t numbers);
// For a checkpoint of this rank, read by a library of the same kind of processor.
std::vector<std::byte> bytes_of(weftTrainCompression_t method, std::span<const CompressorState> states);
// Fails if the bytes are damaged, or of another method.
Result<std::vector<CompressorState>> states_from(weftTrainCompression_t method, std::span<const std::byte> bytes);

}  // namespace weft::internal::train
