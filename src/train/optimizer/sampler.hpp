// sampler.hpp: which samples of a data set each rank takes. No communication.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::internal::train {

// How many samples each rank takes: of all, padded by wrapping, or without the last incomplete turn.
constexpr size_t samples_of_rank(size_t samples, size_t ranks, bool drop_last) {
    return samples / ranks + (!drop_last && samples % ranks != 0 ? 1 : 0);
}
// The place of a rank's sample number i among all samples.
constexpr size_t sample_place(size_t samples, size_t ranks, size_t rank, size_t i) {
    return (rank + i * ranks) % samples;
}
// Writes 0 to size - 1 in an order that the seed determines, on all machines alike.
void shuffle(uint64_t seed, std::span<uint64_t> order);

}  // namespace weft::internal::train
