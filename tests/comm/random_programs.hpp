// random_programs.hpp: a random program of all ways to call: collectives, reductions by functions of the user's, those
// of uneven parts, barriers, messages and one-sided calls on several communicators, of which some do not block, by
// themselves, in groups, on streams, prepared, with settings of their own, communicators split, shrunk and ended meanwhile; each
// result against the exact reference. All ranks draw the same program from the seed, but each for itself which calls go
// to streams. Clients' interface only, so ranks may be threads or processes.
#pragma once
#include "tests/comm/random_calls.hpp"

namespace weft::internal::test {

// Runs this rank's part of `sequence.calls` rounds; `world` lives on. What went wrong, or nothing.
std::string run_random_program(weftComm_t world, const Sequence& sequence);

}  // namespace weft::internal::test
