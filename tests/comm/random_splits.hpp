// random_splits.hpp: a random sequence of splits, shrinks (of healthy communicators, and of such as are aborted with what
// is in progress on them), collectives and ends over a growing family of communicators, each checked against a model: who
// is in it, in which order. Every rank draws the same sequence from the seed; clients' interface only, so ranks may be
// threads or processes, or several of them one thread's.
#pragma once
#include <weft/weft.h>

#include <cstdint>
#include <map>
#include <string>

namespace weft::internal::test {

// Runs the part of those ranks of a communicator of `ranks` whose handles `world` has, by their number; ends all
// communicators. What went wrong, or nothing.
std::string run_random_splits(const std::map<int, weftComm_t>& world, int ranks, uint32_t seed, int steps);

}  // namespace weft::internal::test
