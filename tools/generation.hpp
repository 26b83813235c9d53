// generation.hpp: the processes of a job from a start to the end of the last of them.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/clock.hpp"
#include "src/base/fd.hpp"
#include "src/base/result.hpp"
#include "tools/restarts.hpp"

namespace weft::internal::tools {

struct RankProcess {
    pid_t pid = -1;  // until reaped
    Fd pidfd;        // empty: SIGCHLD reports the rank's end
};

struct Generation {
    explicit Generation(int count) : ranks(size_t(count)) {}

    // The pipe for StartFailure, and the file for notes of the ranks.
    Status open_reports();
    // For the ranks: as a path, because programs may close what they inherit.
    std::string notes_path() const;
    // To the ranks that run.
    void signal(int signal);
    // Takes note of the end of a rank, by its status of waitpid(). Returns whether the rank has failed.
    bool note_end(int rank, int status);
    // Text as "rank 3" or "ranks 0, 1, 2 and 61 more".
    std::string running_text() const;

    std::vector<RankProcess> ranks;
    int running = 0;
    Fd report_source, report_target;
    Fd notes;                        // src/base/launcher_notes.hpp
    std::optional<int> exit_status;  // of the first failure
    bool signalled = false;          // the launcher has sent a signal
    int64_t begun_us = now_us();
    Failure failure;
    int64_t term_at_us = INT64_MAX;  // time of SIGTERM for ranks that still run
    int64_t kill_at_us = INT64_MAX;  // time of SIGKILL
};

}  // namespace weft::internal::tools
