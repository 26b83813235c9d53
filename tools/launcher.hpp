// launcher.hpp: the ranks of one job on this machine, from start to end: signals passed on, failures told, nothing
// left.
#pragma once
#include <string>
#include <vector>

#include "src/base/result.hpp"

namespace weft::internal::tools {

struct Job {
    int ranks = 0;
    std::vector<std::string> command;
    std::string unique_id;  // for WEFT_UNIQUE_ID
    bool bind_cores = true;
    bool label = false;       // each line of output with its rank before it
    bool end_others = true;   // when one fails
    double grace_s = 5;       // from a failure to SIGTERM, and from there to SIGKILL
    double time_limit_s = 0;  // 0: none
};

// Runs the job to its end. Returns the status of the first rank that failed (128 + signal if one ended it), 0 if none
// did, 124 after the time limit, 127 or 126 if the program cannot be started. Takes over the process's signals and
// children; call it once, from the only thread.
Result<int> launch(const Job& job);

}  // namespace weft::internal::tools
