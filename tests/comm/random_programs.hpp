// random_programs.hpp: a random program of all kinds of calls on several communicators, some of them non-blocking.
// Calls run alone, in groups, on streams, prepared, or with a call config, while communicators are split, shrunk and
// ended.
// Each result is held against the exact reference. All ranks draw the same program from the seed, but each rank decides
// for itself which calls use streams. Clients' interface only, so ranks may be threads or processes.
#pragma once
#include "tests/comm/random_calls.hpp"

namespace weft::internal::test {

// Runs this rank's part of `sequence.calls` rounds; `world` lives on. Returns the first error, or nothing.
std::string run_random_program(weftComm_t world, const Sequence& sequence);

}  // namespace weft::internal::test
