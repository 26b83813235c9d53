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
#include "tools/labelled_stream.hpp"
#include "tools/process_end.hpp"
#include "tools/rank_process.hpp"

namespace weft::internal::tools {
namespace {

const int forwarded_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};

struct RankProcess {
    pid_t pid = -1;  // until reaped
    Fd pidfd;        // empty: SIGCHLD reports the rank's end
};

// Data of the epoll events: a rank's number means the end of its process.
enum : uint64_t { signal_event = UINT64_MAX, report_event = UINT64_MAX - 1 };

class Launcher {
  public:
    Launcher(const Job& job, LabelledStream output, LabelledStream error)
        : job_(job), output_(std::move(output)), error_(std::move(error)), ranks_(size_t(job.ranks)) {}
    Status prepare();
    int run();

  private:
    Status raise_descriptor_limit();
    Status watch(int descriptor, uint64_t event);
    Status start(int rank, int processor);
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
    void signal_ranks(int signal);
    std::string running_text() const;
    int64_t grace_us() const { return int64_t(job_.grace_s * 1e6); }

    const Job& job_;
    ProcessState original_ = {};
    LabelledStream output_, error_;
    std::vector<RankProcess> ranks_;
    int running_ = 0;
    Fd events_, signals_, report_source_, report_target_;
    std::optional<int> exit_status_;  // of the first failure
    int64_t stop_at_us_ = INT64_MAX;  // from the time limit
    int64_t term_at_us_ = INT64_MAX;  // time of SIGTERM for ranks that still run
    int64_t kill_at_us_ = INT64_MAX;  // time of SIGKILL
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
    WEFT_TRY(raise_descriptor_limit());

    signals_ = Fd(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
    events_ = Fd(epoll_create1(EPOLL_CLOEXEC));
    int ends[2];
    if (!signals_ || !events_ || pipe2(ends, O_CLOEXEC) != 0) {
        return fail(error::system_call, "the launcher cannot be set up: {}", errno_text(errno));
    }
    report_source_ = Fd(ends[0]);
    report_target_ = Fd(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    WEFT_TRY(watch(signals_.number(), signal_event));
    return watch(report_source_.number(), report_event);
}

Status Launcher::raise_descriptor_limit() {
    // a limit that is too low causes an error later
    if (getrlimit(RLIMIT_NOFILE, &original_.open_files) != 0) return ok();
    rlim_t needed = rlim_t(job_.ranks) * (job_.label ? 3 : 1) + 32;  // and some for the launcher
    if (original_.open_files.rlim_cur >= needed) return ok();
    rlimit raised = {std::min(needed, original_.open_files.rlim_max), original_.open_files.rlim_max};
    if (raised.rlim_cur < needed || setrlimit(RLIMIT_NOFILE, &raised) != 0) {
        return fail(error::command_system, "{} ranks need {} open files, but the hard limit is {} (`ulimit -Hn`)",
                    job_.ranks, needed, original_.open_files.rlim_max);
    }
    return ok();
}

Status Launcher::watch(int descriptor, uint64_t event) {
    epoll_event wanted = {};
    wanted.events = EPOLLIN;
    wanted.data.u64 = event;
    if (epoll_ctl(events_.number(), EPOLL_CTL_ADD, descriptor, &wanted) == 0) return ok();
    return fail(error::system_call, "file descriptor {} cannot be polled: {}", descriptor, errno_text(errno));
}

Status Launcher::start(int rank, int processor) {
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
    Result<pid_t> pid = start_rank({rank, job_.ranks, job_.command, job_.unique_id, processor, writing[0].number(),
                                    writing[1].number(), original_},
                                   report_target_.number());
    if (!pid) return pid.take_status();
    RankProcess& process = ranks_[size_t(rank)];
    process.pid = *pid;
    ++running_;
    // Kernels before 5.3 and container profiles of that time refuse it. Then SIGCHLD reports that some rank ended.
    process.pidfd = Fd(int(syscall(SYS_pidfd_open, *pid, 0)));
    if (process.pidfd && !watch(process.pidfd.number(), uint64_t(rank)).ok()) process.pidfd.reset();
    return ok();
}

int Launcher::run() {
    std::vector<int> processors;
    Status trouble;
    if (job_.bind_cores) {
        Result<std::vector<int>> order = binding_order();
        if (order)
            processors = std::move(*order);
        else
            trouble = order.take_status();
    }
    for (int rank = 0; rank < job_.ranks && trouble.ok(); ++rank) {
        trouble = start(rank, processors.empty() ? -1 : processors[size_t(rank) % processors.size()]);
    }
    report_target_.reset();
    if (!trouble) {
        say(trouble.sentence());
        exit_status_ = 1;
        term_at_us_ = 0;
    }
    if (job_.time_limit_s > 0) stop_at_us_ = now_us() + int64_t(job_.time_limit_s * 1e6);
    while (running_ > 0) {
        wait_for_events(std::min({stop_at_us_, term_at_us_, kill_at_us_}));
        look_at_output();
        reap_strangers();
        escalate();
    }
    if (job_.end_others) end_strangers();
    // From here on a signal may end the launcher: only the last output is left to write.
    sigprocmask(SIG_SETMASK, &original_.signal_mask, nullptr);
    output_.finish();
    error_.finish();
    look_at_output();
    error_.finish();
    return exit_status_.value_or(0);
}

// Lost output fails the job. With a full disk this is the first failure; without a reader it is the ranks' SIGPIPE.
void Launcher::look_at_output() {
    const int error = output_.error() != 0 ? output_.error() : error_.error();
    if (error == 0 || exit_status_) return;
    if (error == EPIPE) {
        if (running_ == 0) exit_status_ = 128 + SIGPIPE;
        return;
    }
    exit_status_ = 1;
    say(fmt::format("the ranks' output could not be written: {}", errno_text(error)));
    if (job_.end_others) term_at_us_ = now_us() + grace_us();
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
            for (size_t rank = 0; rank < ranks_.size(); ++rank)
                if (!ranks_[rank].pidfd) handle_end(int(rank));
            continue;
        }
        // The terminal signals the ranks as well because they are in the launcher's process group.
        bool from_terminal = received.ssi_code == SI_KERNEL;
        // SIGTSTP does not stop ranks in an orphaned process group, as under a batch system; SIGSTOP always does.
        if (!from_terminal) signal_ranks(signal == SIGTSTP ? SIGSTOP : signal);
        if (signal == SIGTSTP) raise(SIGSTOP);
    }
}

void Launcher::read_reports() {
    StartFailure failure;
    ssize_t count = 0;
    while ((count = read(report_source_.number(), &failure, sizeof failure)) == sizeof failure) {
        if (exit_status_) continue;  // the other ranks cannot start either
        say(failure.sentence(job_.command[0]));
        exit_status_ = failure.exit_status();
        term_at_us_ = 0;
    }
    // All ranks have called exec or ended.
    if (count == 0) epoll_ctl(events_.number(), EPOLL_CTL_DEL, report_source_.number(), nullptr);
}

void Launcher::handle_end(int rank) {
    RankProcess& process = ranks_[size_t(rank)];
    if (process.pid < 0) return;
    read_reports();  // the reason, if the rank never called exec
    int status = 0;
    if (waitpid(process.pid, &status, WNOHANG) != process.pid) return;
    pid_t pid = std::exchange(process.pid, -1);
    // close() alone does not remove it: a rank between fork and exec has the descriptor, too.
    if (process.pidfd) epoll_ctl(events_.number(), EPOLL_CTL_DEL, process.pidfd.number(), nullptr);
    process.pidfd.reset();
    --running_;
    bool failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    if (!failed || exit_status_) return;
    exit_status_ = exit_status_of(status);
    say(fmt::format("rank {} (pid {}) {}", rank, pid, end_text(status)));
    if (job_.end_others) term_at_us_ = now_us() + grace_us();
}

// Reaps ended orphans of the ranks. handle_end() reaps the ranks themselves.
void Launcher::reap_strangers() {
    for (;;) {
        siginfo_t ended = {};
        if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) return;
        for (const RankProcess& process : ranks_) {
            if (process.pid == ended.si_pid) return;
        }
        waitpid(ended.si_pid, nullptr, WNOHANG);
    }
}

void Launcher::escalate() {
    if (running_ == 0) return;
    int64_t now = now_us();
    if (now >= stop_at_us_) {
        say(fmt::format("the time limit of {} s is over; ending {}", job_.time_limit_s, running_text()));
        exit_status_ = exit_status_.value_or(124);
        stop_at_us_ = INT64_MAX;
        term_at_us_ = now;
    } else if (now >= term_at_us_ && term_at_us_ > 0) {
        say(fmt::format("ending {}, {} s after the failure", running_text(), job_.grace_s));
    }
    if (now >= term_at_us_) {
        signal_ranks(SIGTERM);
        signal_ranks(SIGCONT);  // a stopped process handles SIGTERM only after SIGCONT
        term_at_us_ = INT64_MAX;
        kill_at_us_ = now + grace_us();
    } else if (now >= kill_at_us_) {
        say(fmt::format("killing {}, {} s after SIGTERM", running_text(), job_.grace_s));
        signal_ranks(SIGKILL);
        kill_at_us_ = INT64_MAX;
    }
}

void Launcher::signal_ranks(int signal) {
    for (const RankProcess& process : ranks_) {
        if (process.pid > 0) kill(process.pid, signal);
    }
}

// Text as "rank 3" or "ranks 0, 1, 2 and 61 more".
std::string Launcher::running_text() const {
    std::string text = running_ == 1 ? "rank" : "ranks";
    int named = 0;
    for (size_t rank = 0; rank < ranks_.size() && named < 3; ++rank) {
        if (ranks_[rank].pid > 0) text += fmt::format("{} {}", named++ == 0 ? "" : ",", rank);
    }
    if (running_ > named) text += fmt::format(" and {} more", running_ - named);
    return text;
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
