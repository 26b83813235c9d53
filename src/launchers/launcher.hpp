// launcher.hpp: the job that a launcher started this process in: rank, size, and an id that all ranks share.
#pragma once
#include <string>

#include "src/base/options.hpp"
#include "src/rendezvous/unique_id.hpp"

namespace weft::internal {

struct LaunchedJob {
    const char* launcher;  // for the log
    int rank = 0;
    int ranks = 1;
    int local_rank = -1;  // among the ranks of this host; -1: the launcher does not say
    int local_size = -1;
    UniqueId id;            // of the job's first communicator
    std::string id_source;  // for the log: how the id came here
};

// What the first launcher of launcher.def that is in the environment says; a job of one rank if there is none. Rank 0
// makes the id and the launcher's store hands it out, so this is collective over all ranks and ends by the options'
// init_timeout_ms; without a store all ranks derive one. A half-set family, a number that is none, or a rank that is no
// rank of the job is weftInvalidUsage and names the variables.
Result<LaunchedJob> read_job(const Options& options);

// The process's job by its options(), kept once it is found: a launcher's store is asked once. Thread-safe.
Result<LaunchedJob> read_job();

}  // namespace weft::internal
