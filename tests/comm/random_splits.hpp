// random_splits.hpp: a random sequence of splits, shrinks, collectives and ends over a growing family of communicators.
// Some shrinks abort calls in progress. Each communicator's ranks and their order are checked against a model.
// Every rank draws the same sequence from the seed. Clients' interface only, so ranks may be threads, processes, or
// several of one thread.
#pragma once
#include <weft/weft.h>

#include <cstdint>
#include <map>
#include <string>

namespace weft::internal::test {

// Runs the part of the ranks whose handles `world` has, by rank, of a communicator of `ranks`; ends all communicators.
// Returns the first error, or nothing.
std::string run_random_splits(const std::map<int, weftComm_t>& world, int ranks, uint32_t seed, int steps);

}  // namespace weft::internal::test
