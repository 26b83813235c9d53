// random_calls.hpp: a random sequence of collectives as a program would call them, each checked against the exact
// reference. Every rank draws the same sequence from the seed; clients' interface only, so ranks may be threads or
// processes.
#pragma once
#include <weft/weft.h>

#include <cstdint>
#include <string>

namespace weft::internal::test {

struct Sequence {
    uint32_t seed = 0;
    int calls = 0;
    size_t most_elements = 50'000;
    bool all_reduce_only = false;
    bool functions = false;  // of the user's too; one does not commute, so no algorithm may be demanded
};

// Runs this rank's part. Returns the first error, or nothing.
std::string run_random_calls(weftComm_t comm, const Sequence& sequence);

}  // namespace weft::internal::test
