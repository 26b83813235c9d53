// rank_process.hpp: starts one rank: fork, environment, processor, exec.
#pragma once
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "src/base/fd.hpp"
#include "src/base/result.hpp"

namespace weft::internal::tools {

// Process state that the launcher changed for itself and that a rank must get unchanged.
struct ProcessState {
    sigset_t signal_mask;
    struct sigaction pipe_action;
    rlimit open_files;

    // For the launcher itself, which needs so many open files. A limit that is too low causes an error later.
    Status raise_open_files(rlim_t needed, int ranks);
};

struct RankStart {
    int rank;
    int ranks;
    int restarts, restarts_most;  // of the job so far, and in the end
    const std::vector<std::string>& command;
    const std::string& unique_id;
    int processor;      // the processor to bind to; -1: none
    int output, error;  // descriptors for its stdout and stderr; -1: the launcher's
    std::string notes;  // for WEFT_LAUNCHER_NOTES; empty: none
    const ProcessState& original;
};

// A rank that cannot call exec writes this struct to a pipe, in one write, before it ends.
enum class StartStep : int { input, output, bind, execute };
struct StartFailure {
    int rank;
    StartStep step;
    int error;  // errno
    // A message, and the status that a shell would return: 127 not found, 126 not executable.
    std::string sentence(const std::string& program) const;
    int exit_status() const;
};

// Returns the child's pid. The child ends with the launcher, whenever that is. report: the pipe for StartFailure, which
// exec closes. The caller has one thread. Errors: weftSystemError.
Result<pid_t> start_rank(const RankStart& start, int report);

}  // namespace weft::internal::tools
