// random_windows.hpp: random one-sided calls on windows, in orders of each rank's own, looked at against a model of all
// ranks' memory. Every rank draws the same rounds from the seed; clients' interface only, so ranks may be threads,
// processes or all in one thread's groups.
#pragma once
#include <weft/weft.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weft::internal::test {

struct WindowSequence {
    uint32_t seed = 0;
    int rounds = 0;
    size_t most_bytes = 100'000;  // of a rank's part of a window
};

// Runs one rank. Returns the first error, or nothing.
std::string run_random_windows(weftComm_t comm, const WindowSequence& sequence);
// All ranks, driven by this thread.
std::string run_random_windows_of_all(const std::vector<weftComm_t>& comms, const WindowSequence& sequence);

}  // namespace weft::internal::test
