// derived_id.hpp: the unique id that all ranks of a job make alike, where its launcher can carry none.
#pragma once
#include "src/base/options.hpp"
#include "src/launchers/launcher_family.hpp"
#include "src/rendezvous/deadline.hpp"
#include "src/rendezvous/unique_id.hpp"

namespace weft::internal {

// From the job's identity, and where rank 0 is met if there are several hosts: WEFT_ROOT_HOST, else as the launcher's
// row says; WEFT_ROOT_PORT, else a port that follows from the identity, never MASTER_PORT. Whoever knows the identity
// can derive it too: a WARN asks for WEFT_SECRET where that matters. A place or an identity that is missing is a
// sentence, as is a resolver that does not answer within the deadline; `reason`, why nobody carried an id, is a part of
// it.
Result<UniqueId> derive_id(const Family& family, const LaunchedRank& place, const Options& options,
                           const std::string& reason, Deadline deadline);

// Pod 0's name: `host`, the name of pod `index`, ends in the index. Empty if it does not.
std::string first_pod(const std::string& host, int index);
// One of 20000 to 29999, the same for the same job; not `taken`.
uint16_t derived_port(const std::string& identity, uint16_t taken);

}  // namespace weft::internal
