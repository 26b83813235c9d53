// first_cause.hpp: picks the failure to report when several ranks have ended: the first one.
// A rank that ended after a failure was returned to it (returned_error.hpp) is never the cause.
#pragma once
#include "src/segment/segment.hpp"

namespace weft::internal {

// How a dead rank died, as far as known: `rank 3 (pid 77) died inside operation 5`.
std::string death_of(const Segment& segment, int rank);
// The failure to report instead of `seen`, a weftRemoteError. `seen` stands unless a rank ended after an error was
// returned to it. Then the result is the death of a rank without a returned error, or else that returned error.
// `blamed`: the rank that `seen` blames, or -1. If that rank left without a returned error, `seen` stands.
Status first_cause(const Segment& segment, Status seen, int blamed = -1);
// The death of a rank that explains the failures seen so far; ok if none is known yet. For callers that may still
// receive reports of other ranks.
Status known_cause(const Segment& segment);

}  // namespace weft::internal
