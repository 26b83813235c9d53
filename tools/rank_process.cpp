#include "tools/rank_process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "tools/binding.hpp"

namespace weft::internal::tools {
namespace {

[[noreturn]] void give_up(const RankStart& start, int report, StartStep step, int error) {
    StartFailure failure = {start.rank, step, error};
    // The write is atomic because it is less than PIPE_BUF. The pipe has no reader only if the launcher has ended.
    ssize_t written = write(report, &failure, sizeof failure);
    _exit(written == sizeof failure ? failure.exit_status() : 127);
}

void set_variable(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

// Runs in the child until exec. The process has one thread, so the child may allocate.
[[noreturn]] void become_rank(const RankStart& start, int report, pid_t launcher) {
    // The signal comes when the launcher ends in any way. The launcher may have ended before this call.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(128 + SIGKILL);

    // Only one process can read the terminal: rank 0.
    if (start.rank != 0) {
        int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0) give_up(start, report, StartStep::input, errno);
    }
    if (start.output >= 0 && dup2(start.output, STDOUT_FILENO) < 0) give_up(start, report, StartStep::output, errno);
    if (start.error >= 0 && dup2(start.error, STDERR_FILENO) < 0) give_up(start, report, StartStep::output, errno);
    if (start.processor >= 0) {
        if (int error = bind_to(start.processor); error != 0) give_up(start, report, StartStep::bind, error);
    }

    set_variable("WEFT_RANK", std::to_string(start.rank));
    set_variable("WEFT_SIZE", std::to_string(start.ranks));
    set_variable("WEFT_LOCAL_RANK", std::to_string(start.rank));
    set_variable("WEFT_LOCAL_SIZE", std::to_string(start.ranks));
    set_variable("WEFT_UNIQUE_ID", start.unique_id);
    set_variable("WEFT_RESTART_COUNT", std::to_string(start.restarts));
    set_variable("WEFT_MAX_RESTARTS", std::to_string(start.restarts_most));
    if (start.notes.empty())
        unsetenv("WEFT_LAUNCHER_NOTES");
    else
        set_variable("WEFT_LAUNCHER_NOTES", start.notes);

    std::vector<char*> arguments;
    for (const std::string& argument : start.command) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);

    if (start.original.open_files.rlim_max > 0) setrlimit(RLIMIT_NOFILE, &start.original.open_files);
    sigaction(SIGPIPE, &start.original.pipe_action, nullptr);
    sigprocmask(SIG_SETMASK, &start.original.signal_mask, nullptr);
    execvp(arguments[0], arguments.data());
    give_up(start, report, StartStep::execute, errno);
}

}  // namespace

Status ProcessState::raise_open_files(rlim_t needed, int ranks) {
    if (getrlimit(RLIMIT_NOFILE, &open_files) != 0 || open_files.rlim_cur >= needed) return ok();
    rlimit raised = {std::min(needed, open_files.rlim_max), open_files.rlim_max};
    if (raised.rlim_cur >= needed && setrlimit(RLIMIT_NOFILE, &raised) == 0) return ok();
    return fail(error::command_system, "{} ranks need {} open files, but the hard limit is {} (`ulimit -Hn`)", ranks,
                needed, open_files.rlim_max);
}

std::string StartFailure::sentence(const std::string& program) const {
    switch (step) {
        case StartStep::input:
            return fmt::format("cannot give rank {} /dev/null as its input: {}", rank, errno_text(error));
        case StartStep::output: return fmt::format("cannot connect the output of rank {}: {}", rank, errno_text(error));
        case StartStep::bind:
            return fmt::format("cannot bind rank {} to its processor: {}; --bind none does without", rank,
                               errno_text(error));
        case StartStep::execute: break;
    }
    if (error == ENOENT && program.find('/') == std::string::npos) {
        return fmt::format("cannot start {}: no such program in PATH", program);
    }
    if (error == ENOENT) {
        return fmt::format("cannot start {}: it, or the interpreter that its first line names, does not exist",
                           program);
    }
    return fmt::format("cannot start {}: {}", program, errno_text(error));
}

int StartFailure::exit_status() const {
    if (step != StartStep::execute) return 1;
    return error == ENOENT ? 127 : 126;
}

Result<pid_t> start_rank(const RankStart& start, int report) {
    pid_t launcher = getpid();
    pid_t child = fork();
    if (child == 0) become_rank(start, report, launcher);
    if (child < 0) {
        return fail(error::command_system,
                    "rank {} of {} cannot be started: {}; `ulimit -u` prints the limit of processes", start.rank,
                    start.ranks, errno_text(errno));
    }
    return child;
}

}  // namespace weft::internal::tools
