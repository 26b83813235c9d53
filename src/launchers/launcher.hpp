// launcher.hpp: the job of this process as its launcher describes it: rank, size, and a unique id that all ranks share.
#pragma once
#include <string>

#include "src/base/options.hpp"
#include "src/rendezvous/unique_id.hpp"

namespace weft::internal {

struct LaunchedJob {
    const char* launcher;  // for the log
    int rank = 0;
    int ranks = 1;
    int local_rank = -1;  // among the ranks of this host; -1: unknown
    int local_size = -1;
    UniqueId id;            // of the job's first communicator
    std::string id_source;  // for the log: the origin of the id
};

// The job by the first launcher of families.def in the environment; without one, a job of one rank. Rank 0 makes the id
// and the launcher's store passes it on, so the call is collective over all ranks. It ends at init_timeout_ms. Without a
// store all ranks derive the same id. launcher.variables: variables are missing or invalid; the sentence names them.
Result<LaunchedJob> read_job(const Options& options);

// The process's job by its options(). It is kept, so that a launcher's store is asked once and the key of WEFT_SECRET is
// derived once. Thread-safe.
Result<LaunchedJob> read_job();

}  // namespace weft::internal
