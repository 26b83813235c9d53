// launcher.hpp: runs the ranks of one job on this machine: forwards signals, reports failures, leaves no process
// behind.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "tools/restarts.hpp"

namespace weft::internal::tools {

struct Job {
    int ranks = 0;
    std::vector<std::string> command;
    std::string unique_id;                                // for WEFT_UNIQUE_ID
    std::function<Result<std::string>()> make_unique_id;  // of each restart
    std::optional<Elasticity> elasticity;                 // none: a failure ends the job
    bool bind_cores = true;
    bool label = false;       // each line of output has its rank as label
    bool end_others = true;   // after a failure
    double grace_s = 5;       // from a failure to SIGTERM, and from SIGTERM to SIGKILL
    double time_limit_s = 0;  // 0: none
};

// Runs the job to its end. With `elasticity`, a generation of ranks that fails is followed by another one, until one
// passes, no restart is left, or a signal asks the launcher to end. Then the last generation counts. Returns the status of the first rank that failed (128 + signal if a signal ended it).
// Other results: 0 without a failure, 124 after the time limit, 127 or 126 if the program cannot be started.
// Takes over the process's signals and children. Call it once, from the only thread.
Result<int> launch(const Job& job);

}  // namespace weft::internal::tools
