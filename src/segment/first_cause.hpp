// first_cause.hpp: which failure of a rank is reported when several ranks have ended: the first. A rank whose process
// ended after it was told of a failure (returned_error.hpp) is never the cause.
#pragma once
#include "src/segment/segment.hpp"

namespace weft::internal {

// How a rank that is dead died, as far as it is known: `rank 3 (pid 77) died inside operation 5`.
std::string death_of(const Segment& segment, int rank);
// The failure to report in the place of `seen`, a weftRemoteError. It is `seen` unless a rank of the segment has ended
// after it was told of a failure. Then it is the death of a rank that was told nothing, or else what that rank was told.
// `blamed`: the rank that `seen` blames, if it blames one. If that rank left and was told nothing, `seen` stands.
Status first_cause(const Segment& segment, Status seen, int blamed = -1);
// The same where news of other ranks may still come: the death of another rank; ok if none is known yet.
Status known_cause(const Segment& segment);

}  // namespace weft::internal
