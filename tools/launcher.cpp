#include "tools/launcher.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <utility>

#include "src/base/clock.hpp"
#include "src/base/fd.hpp"
#include "tools/binding.hpp"
#include "tools/generation.hpp"
#include "tools/labelled_stream.hpp"
#include "tools/process_end.hpp"
#include "tools/rank_process.hpp"
#include "tools/restarts.hpp"

namespace weft::internal::tools {
namespace {

const int forwarded_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};

// Data of the epoll events: a rank's number means the end of its process.
enum : uint64_t { signal_event = UINT64_MAX, report_event = UINT64_MAX - 1 };

class Launcher {
  public:
    Launcher(const Job& job, LabelledStream output, LabelledStream error)
        : job_(job), output_(std::move(output)), error_(std::move(error)), now_(job.ranks) {
        if (job.elasticity) restarts_.emplace(*job.elasticity, job.ranks);
    }
    Status prepare();
    int run();

  private:
    Status watch(int descriptor, uint64_t event);
    Status start(int rank, const std::string& unique_id);
    Status start_all();
    void run_ranks();
    bool prepare_restart();
    void wait_for_events(int64_t until_us);
    void handle_event(uint64_t event);
    void handle_signal();
    void read_reports();
    void handle_end(int rank);
    void reap_strangers();
    void look_at_output();
    void escalate();
    void end_strangers();
    void say(const std::string& sentence) { error_.say("weft run: " + sentence); }
    int64_t grace_us() const { return int64_t(job_.grace_s * 1e6); }

    const Job& job_;
    ProcessState original_ = {};
    LabelledStream output_, error_;
    Fd events_, signals_;
    std::vector<int> processors_;     // of the ranks, in turns; empty: any
    int64_t stop_at_us_ = INT64_MAX;  // from the time limit
    bool job_ends_ = false;           // no restart may follow
    std::optional<Restarts> restarts_;
    Generation now_;
};

Status Launcher::prepare() {
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    for (int signal : forwarded_signals) sigaddset(&wanted, signal);
    sigprocmask(SIG_BLOCK, &wanted, &original_.signal_mask);
    struct sigaction ignore = {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &ignore, &original_.pipe_action);
    // A parent may have left SIGCHLD ignored; then waitpid() would find no child.
    signal(SIGCHLD, SIG_DFL);
    // Orphans of the ranks become children of the launcher, which ends them with the job.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    WEFT_TRY(
        original_.raise_open_files(rlim_t(job_.ranks) * (job_.label ? 3 : 1) + 32, job_.ranks));  // some are its own

    signals_ = Fd(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
    events_ = Fd(epoll_create1(EPOLL_CLOEXEC));
    if (!signals_ || !events_) return fail(error::system_call, "the launcher cannot be set up: {}", errno_text(errno));
    return watch(signals_.number(), signal_event);
}

Status Launcher::watch(int descriptor, uint64_t event) {
    epoll_event wanted = {};
    wanted.events = EPOLLIN;
    wanted.data.u64 = event;
    if (epoll_ctl(events_.number(), EPOLL_CTL_ADD, descriptor, &wanted) == 0) return ok();
    return fail(error::system_call, "file descriptor {} cannot be polled: {}", descriptor, errno_text(errno));
}

Status Launcher::start(int rank, const std::string& unique_id) {
    Fd writing[2];
    LabelledStream* streams[] = {&output_, &error_};
    for (int i = 0; job_.label && i < 2; ++i) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) {
            return fail(error::system_call, "a pipe for rank {} cannot be made: {}", rank, errno_text(errno));
        }
        writing[i] = Fd(ends[1]);
        WEFT_TRY(streams[i]->add(rank, Fd(ends[0])));
    }
    Result<pid_t> pid =
        start_rank({rank, int(now_.ranks.size()), restarts_ ? restarts_->count() : 0,
                    job_.elasticity ? job_.elasticity->restarts_most : 0, job_.command, unique_id,
                    processors_.empty() ? -1 : processors_[size_t(rank) % processors_.size()], writing[0].number(),
                    writing[1].number(), restarts_ ? now_.notes_path() : "", original_},
                   now_.report_target.number());
    if (!pid) return pid.take_status();
    RankProcess& process = now_.ranks[size_t(rank)];
    process.pid = *pid;
    ++now_.running;
    // Kernels before 5.3 and container profiles of that time refuse it. Then SIGCHLD reports that some rank ended.
    process.pidfd = Fd(int(syscall(SYS_pidfd_open, *pid, 0)));
    if (process.pidfd && !watch(process.pidfd.number(), uint64_t(rank)).ok()) process.pidfd.reset();
    return ok();
}

Status Launcher::start_all() {
    WEFT_TRY(now_.open_reports());
    WEFT_TRY(watch(now_.report_source.number(), report_event));
    if (job_.bind_cores) {
        Result<std::vector<int>> order = binding_order();
        if (!order) return order.take_status();
        processors_ = std::move(*order);
    }
    const bool again = restarts_ && restarts_->count() > 0;
    Result<std::string> unique_id = again ? job_.make_unique_id() : job_.unique_id;
    if (!unique_id) return unique_id.take_status();
    for (int rank = 0; rank < int(now_.ranks.size()); ++rank) WEFT_TRY(start(rank, *unique_id));
    return ok();
}

void Launcher::run_ranks() {
    const Status trouble = start_all();
    now_.report_target.reset();
    if (!trouble) {
        say(trouble.sentence());
        now_.exit_status = 1;
        now_.term_at_us = 0;
        job_ends_ = true;
    }
    while (now_.running > 0) {
        wait_for_events(std::min({stop_at_us_, now_.term_at_us, now_.kill_at_us}));
        look_at_output();
        reap_strangers();
        escalate();
    }
    end_strangers();
}

// Whether another generation follows the one that has ended.
bool Launcher::prepare_restart() {
    if (!restarts_ || !now_.exit_status || job_ends_) return false;
    const std::optional<int> ranks = restarts_->after_failure(now_.failure);
    if (!ranks) {
        say(fmt::format("no restart is left ({}, --max-restarts). The failures:", restarts_->count_text()));
        for (const std::string& line : restarts_->history()) say(line);
        return false;
    }
    say(fmt::format("restart {} with {} rank{}", restarts_->count_text(), *ranks, *ranks == 1 ? "" : "s"));
    now_ = Generation(*ranks);
    return true;
}

int Launcher::run() {
    if (job_.time_limit_s > 0) stop_at_us_ = now_us() + int64_t(job_.time_limit_s * 1e6);
    do run_ranks();
    while (prepare_restart());
    // From here on a signal may end the launcher: only the last output is left to write.
    sigprocmask(SIG_SETMASK, &original_.signal_mask, nullptr);
    output_.finish();
    error_.finish();
    look_at_output();
    error_.finish();
    return now_.exit_status.value_or(0);
}

// Lost output fails the job. With a full disk this is the first failure; without a reader it is the ranks' SIGPIPE.
void Launcher::look_at_output() {
    const int error = output_.error() != 0 ? output_.error() : error_.error();
    if (error == 0 || now_.exit_status) return;
    job_ends_ = true;
    if (error == EPIPE) {
        if (now_.running == 0) now_.exit_status = 128 + SIGPIPE;
        return;
    }
    now_.exit_status = 1;
    say(fmt::format("the ranks' output could not be written: {}", errno_text(error)));
    if (job_.end_others) now_.term_at_us = now_us() + grace_us();
}

// Moves output and handles events; returns at `until_us` at the latest.
void Launcher::wait_for_events(int64_t until_us) {
    LabelledStream* streams[] = {&output_, &error_};
    std::vector<pollfd> wanted = {{events_.number(), POLLIN, 0}};
    for (LabelledStream* stream : streams) {
        if (stream->has_room()) wanted.push_back({stream->readable(), POLLIN, 0});
        if (stream->has_queued()) wanted.push_back({stream->target(), POLLOUT, 0});
    }
    int timeout_ms = -1;
    if (until_us != INT64_MAX) {
        // Rounded up, because an early return would cause a busy loop. At most an hour, so that it fits an int.
        timeout_ms = int(std::clamp<int64_t>((until_us - now_us() + 999) / 1000, 0, 3'600'000));
    }
    poll(wanted.data(), wanted.size(), timeout_ms);
    for (LabelledStream* stream : streams) {
        if (stream->has_room()) stream->read_some();
        if (stream->has_queued()) stream->write_some();
    }
    // The kernel lists events in order, so the first failure comes first.
    epoll_event events[64];
    int count = epoll_wait(events_.number(), events, 64, 0);
    for (int i = 0; i < count; ++i) handle_event(events[i].data.u64);
}

void Launcher::handle_event(uint64_t event) {
    switch (event) {
        case signal_event: return handle_signal();
        case report_event: return read_reports();
        default: return handle_end(int(event));
    }
}

void Launcher::handle_signal() {
    signalfd_siginfo received;
    while (read(signals_.number(), &received, sizeof received) == sizeof received) {
        int signal = int(received.ssi_signo);
        if (signal == SIGCHLD) {
            for (size_t rank = 0; rank < now_.ranks.size(); ++rank)
                if (!now_.ranks[rank].pidfd) handle_end(int(rank));
            continue;
        }
        // The terminal signals the ranks as well because they are in the launcher's process group.
        bool from_terminal = received.ssi_code == SI_KERNEL;
        // SIGTSTP does not stop ranks in an orphaned process group, as under a batch system; SIGSTOP always does.
        if (!from_terminal) now_.signal(signal == SIGTSTP ? SIGSTOP : signal);
        if (signal == SIGTSTP) raise(SIGSTOP);
        if (restarts_ && asks_to_end(signal)) {
            job_ends_ = true;
            now_.term_at_us = std::min(now_.term_at_us, now_us() + grace_us());
        }
    }
}

void Launcher::read_reports() {
    StartFailure failure;
    ssize_t count = 0;
    while ((count = read(now_.report_source.number(), &failure, sizeof failure)) == sizeof failure) {
        if (now_.exit_status) continue;  // the other ranks cannot start either
        say(failure.sentence(job_.command[0]));
        now_.exit_status = failure.exit_status();
        job_ends_ = true;
        now_.term_at_us = 0;
    }
    // All ranks have called exec or ended.
    if (count == 0) epoll_ctl(events_.number(), EPOLL_CTL_DEL, now_.report_source.number(), nullptr);
}

void Launcher::handle_end(int rank) {
    RankProcess& process = now_.ranks[size_t(rank)];
    if (process.pid < 0) return;
    read_reports();  // the reason, if the rank never called exec
    int status = 0;
    if (waitpid(process.pid, &status, WNOHANG) != process.pid) return;
    pid_t pid = std::exchange(process.pid, -1);
    // close() alone does not remove it: a rank between fork and exec has the descriptor, too.
    if (process.pidfd) epoll_ctl(events_.number(), EPOLL_CTL_DEL, process.pidfd.number(), nullptr);
    process.pidfd.reset();
    --now_.running;
    if (!now_.note_end(rank, status) || now_.exit_status) return;
    now_.exit_status = exit_status_of(status);
    now_.failure.rank = rank;
    now_.failure.sentence =
        fmt::format("rank {} (pid {}){} {}", rank, pid, restarts_ ? " on " + host_name() : "", end_text(status));
    say(now_.failure.sentence);
    if (job_.end_others) now_.term_at_us = now_us() + grace_us();
}

// Reaps ended orphans of the ranks. handle_end() reaps the ranks themselves.
void Launcher::reap_strangers() {
    for (;;) {
        siginfo_t ended = {};
        if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) return;
        for (const RankProcess& process : now_.ranks) {
            if (process.pid == ended.si_pid) return;
        }
        waitpid(ended.si_pid, nullptr, WNOHANG);
    }
}

void Launcher::escalate() {
    if (now_.running == 0) return;
    int64_t now = now_us();
    if (now >= stop_at_us_) {
        say(fmt::format("the time limit of {} s is over; ending {}", job_.time_limit_s, now_.running_text()));
        now_.exit_status = now_.exit_status.value_or(124);
        job_ends_ = true;
        stop_at_us_ = INT64_MAX;
        now_.term_at_us = now;
    } else if (now >= now_.term_at_us && now_.term_at_us > 0) {
        say(fmt::format("ending {}, {} s after the {}", now_.running_text(), job_.grace_s,
                        now_.exit_status ? "failure" : "signal"));
    }
    if (now >= now_.term_at_us) {
        now_.signal(SIGTERM);
        now_.signal(SIGCONT);  // a stopped process handles SIGTERM only after SIGCONT
        now_.term_at_us = INT64_MAX;
        now_.kill_at_us = now + grace_us();
    } else if (now >= now_.kill_at_us) {
        say(fmt::format("killing {}, {} s after SIGTERM", now_.running_text(), job_.grace_s));
        now_.signal(SIGKILL);
        now_.kill_at_us = INT64_MAX;
    }
}

// Ends processes that the ranks started and left, children of the launcher since the ranks ended.
// Each gets SIGTERM when it is found, and SIGKILL after the grace time.
void Launcher::end_strangers() {
    std::map<pid_t, int> sent;  // the last signal sent to each process
    int64_t kill_at_us = now_us() + grace_us();
    int64_t leave_at_us = kill_at_us + 1'000'000;  // SIGKILL takes less than a second, unless the kernel is stuck
    const std::string list = fmt::format("/proc/self/task/{}/children", getpid());
    while (now_us() < leave_at_us) {
        reap_strangers();
        std::ifstream children(list);
        std::vector<pid_t> pids;
        for (pid_t pid; children >> pid;) pids.push_back(pid);
        if (pids.empty()) return;
        int signal = now_us() < kill_at_us ? SIGTERM : SIGKILL;
        for (pid_t pid : pids) {
            if (std::exchange(sent[pid], signal) == signal) continue;
            kill(pid, signal);
            kill(pid, SIGCONT);
        }
        wait_for_events(std::min(now_us() + 50'000, leave_at_us));
    }
    say("some processes that the ranks started do not end");
}

}  // namespace

Result<int> launch(const Job& job) {
    Result<LabelledStream> output = LabelledStream::make(STDOUT_FILENO);
    if (!output) return output.take_status();
    Result<LabelledStream> error = LabelledStream::make(STDERR_FILENO);
    if (!error) return error.take_status();
    Launcher launcher(job, std::move(*output), std::move(*error));
    WEFT_TRY(launcher.prepare());
    return launcher.run();
}

}  // namespace weft::internal::tools
