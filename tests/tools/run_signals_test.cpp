// run_signals_test.cpp: signals to `weft run` reach the ranks, stopping stops all, and ranks never outlive the
// launcher.
#include <signal.h>
#include <sys/wait.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/subprocess.hpp"

using namespace weft::internal::test;

namespace {

// Ranks that print their pid and wait.
const char* const wait_for_end = "echo rank $$; while :; do sleep 0.02; done";

std::vector<pid_t> pids_in(const std::string& output) {
    std::vector<pid_t> pids;
    for (const std::string& line : lines_of(output)) {
        if (line.rfind("rank ", 0) == 0) pids.push_back(std::stoi(line.substr(5)));
    }
    return pids;
}

}  // namespace

TEST_CASE("signals are passed on to every rank, and the launcher lives", "[run]") {
    for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
        std::string name = sigabbrev_np(signal);
        Subprocess job({WEFT_COMMAND, "run", "-n", "3", "sh", "-c",
                        "trap 'echo got " + name + "; exit 0' " + name + "; " + wait_for_end});
        INFO(name);
        REQUIRE(job.says("rank", 3));
        job.kill(signal);
        CHECK(job.says("got " + name, 3));
        CHECK(job.wait() == 0);
    }
}

TEST_CASE("a signal that ranks do not catch ends them, and the exit status shows it", "[run]") {
    Subprocess job({WEFT_COMMAND, "run", "-n", "2", "sh", "-c", wait_for_end});
    REQUIRE(job.says("rank", 2));
    job.kill(SIGTERM);
    CHECK(job.wait() == 128 + SIGTERM);
    CHECK(job.error().find("was killed by signal 15 (SIGTERM)") != std::string::npos);
    for (pid_t pid : pids_in(job.output())) CHECK(process_state(pid) == 'X');
}

TEST_CASE("where the kernel refuses pidfd_open, ends are seen, signals arrive and nothing is left", "[run]") {
    for (const char* error : {"ENOSYS", "EPERM"}) {
        INFO(error);
        const std::vector<std::string> start = {REFUSE, error, "pidfd_open", WEFT_COMMAND, "run", "--grace", "0.2"};
        const auto with = [&](std::vector<std::string> more) {
            std::vector<std::string> all = start;
            all.insert(all.end(), more.begin(), more.end());
            return all;
        };
        CHECK(run(with({"-n", "5", "true"})).status == 0);
        const ProcessResult failed =
            run(with({"-n", "3", "sh", "-c", "test $WEFT_RANK != 1 || exit 7; echo rank $$; exec sleep 1000"}));
        CHECK(failed.status == 7);
        CHECK(failed.error.find("rank 1 (pid ") != std::string::npos);
        for (pid_t pid : pids_in(failed.output)) CHECK(process_state(pid) == 'X');
        CHECK(run(with({"-n", "2", "/nowhere/program"})).status == 127);
        Subprocess job(with({"-n", "3", "sh", "-c", wait_for_end}));
        REQUIRE(job.says("rank", 3));
        job.kill(SIGTERM);
        CHECK(job.wait() == 128 + SIGTERM);
        for (pid_t pid : pids_in(job.output())) CHECK(process_state(pid) == 'X');
    }
}

TEST_CASE("if the kernel refuses anything else, the launcher works without it or ends with status 1", "[run]") {
    for (const std::string call :
         {"close_range", "clone3", "epoll_create1", "getrandom", "membarrier", "memfd_create", "pipe2", "prctl",
          "prlimit64", "rseq", "sched_getaffinity", "sched_setaffinity", "signalfd4", "socket", "statx", "waitid"})
        for (const char* error : {"ENOSYS", "EPERM"}) {
            INFO(call << " " << error);
            Subprocess job({REFUSE, error, call, WEFT_COMMAND, "run", "-n", "2", "true"});
            CHECK(job.ends());
            const int status = job.wait();
            CHECK((status == 0 || (status == 1 && job.error().find("weft run: ") != std::string::npos)));
        }
}

TEST_CASE("stopping the launcher stops the ranks, continuing continues them", "[run]") {
    Subprocess job({WEFT_COMMAND, "run", "-n", "2", "sh", "-c", wait_for_end});
    REQUIRE(job.says("rank", 2));
    std::vector<pid_t> pids = pids_in(job.output());
    REQUIRE(pids.size() == 2);
    job.kill(SIGTSTP);
    CHECK(eventually([&] { return process_state(job.pid()) == 'T'; }));
    for (pid_t pid : pids) CHECK(eventually([&] { return process_state(pid) == 'T'; }));
    job.kill(SIGCONT);
    CHECK(eventually([&] { return process_state(job.pid()) != 'T'; }));
    for (pid_t pid : pids) CHECK(eventually([&] { return process_state(pid) != 'T'; }));
    job.kill(SIGTERM);
    CHECK(job.wait() == 128 + SIGTERM);
}

TEST_CASE("ranks end with a launcher that is killed", "[run]") {
    Subprocess job({WEFT_COMMAND, "run", "-n", "4", "sh", "-c", wait_for_end});
    REQUIRE(job.says("rank", 4));
    job.kill(SIGKILL);
    CHECK(job.wait() == 128 + SIGKILL);
    for (pid_t pid : pids_in(job.output())) CHECK(eventually([&] { return is_gone(pid); }));
}

TEST_CASE("ranks begin with no signal blocked or ignored by the launcher", "[run]") {
    // Compared with a process without it: test runners ignore signals of their own.
    const std::vector<std::string> tell = {"sed", "-n", "s/^Sig\\(Blk\\|Ign\\):[[:space:]]*//p", "/proc/self/status"};
    std::vector<std::string> launched = {WEFT_COMMAND, "run", "-n", "1"};
    launched.insert(launched.end(), tell.begin(), tell.end());
    // Signals 32 and 33 are the C library's own, which takes them back when a process starts a thread.
    const auto masks = [](const std::vector<std::string>& command) {
        std::vector<uint64_t> all;
        for (const std::string& line : lines_of(run(command).output))
            all.push_back(std::stoull(line, nullptr, 16) & ~(uint64_t(3) << 31));
        return all;
    };
    const std::vector<uint64_t> expected = masks(tell);
    CHECK(expected.size() == 2);
    CHECK(masks(launched) == expected);
}
