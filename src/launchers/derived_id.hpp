// derived_id.hpp: the unique id that every rank of a job derives for itself if the launcher has no store for it.
#pragma once
#include "src/base/options.hpp"
#include "src/launchers/launcher_family.hpp"
#include "src/rendezvous/deadline.hpp"
#include "src/rendezvous/unique_id.hpp"

namespace weft::internal {

// Derives the id from the job's identity. With several hosts it contains the address of rank 0. The host is
// WEFT_ROOT_HOST or comes from the launcher's row. The port is WEFT_ROOT_PORT or derived from the identity, never
// MASTER_PORT. A process that knows the identity can derive the id too, so a WARN asks for WEFT_SECRET where that
// matters. `reason`: why no store carried an id, for the sentence of a failure. Failures: launcher.root-host,
// launcher.secret, and launcher.name-lookup at the deadline.
Result<UniqueId> derive_id(const Family& family, const LaunchedRank& place, const Options& options,
                           const std::string& reason, Deadline deadline);

// Pod 0's name: `host`, the name of pod `index`, ends in the index. Empty if it does not.
std::string first_pod(const std::string& host, int index);
// A port from 20000 to 29999, the same on all ranks of a job; not `taken`.
uint16_t derived_port(const std::string& identity, uint16_t taken);

}  // namespace weft::internal
