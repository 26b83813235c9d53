// launcher.hpp: what the process's launcher says in the environment: rank, size, and an id that all ranks share.
#pragma once
#include "src/bootstrap/unique_id.hpp"

namespace weft {

struct Job {
    const char* launcher;  // for the log
    int rank = 0;
    int ranks = 1;
    UniqueId id;
};

// `weft run`, then torchrun's variables, else a job of one rank. A half-set family is weftInvalidUsage and names the
// variable.
Result<Job> read_job();

}  // namespace weft
