// random_messages.hpp: random graphs of sends and receives, posted in random order, and collectives of uneven parts,
// all looked at against a model. Every rank draws the same rounds from the seed; clients' interface only, so ranks may
// be threads, processes or all in one thread's groups.
#pragma once
#include <weft/weft.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weft::internal::test {

struct MessageSequence {
    uint32_t seed = 0;
    int rounds = 0;
    size_t most_bytes = 300'000;  // of a message
};

// Runs one rank on its communicators, all of the same ranks in the same order. Returns the first error, or nothing.
std::string run_random_messages(const std::vector<weftComm_t>& comms, const MessageSequence& sequence);
// All ranks, driven by this thread; comms[rank].
std::string run_random_messages_of_all(const std::vector<std::vector<weftComm_t>>& comms,
                                       const MessageSequence& sequence);

}  // namespace weft::internal::test
