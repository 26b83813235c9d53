// run_test.cpp: `weft run` from start to end: the ranks' environment, the effects of their failures, and that nothing
// stays behind.
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/folder.hpp"
#include "tests/subprocess.hpp"

using namespace weft::internal::test;

namespace {

// `weft run` with these options, of a shell script.
std::vector<std::string> script(std::vector<std::string> options, const std::string& text) {
    std::vector<std::string> arguments = {WEFT_COMMAND, "run"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.insert(arguments.end(), {"sh", "-c", text});
    return arguments;
}

std::vector<std::string> sorted_lines(const std::string& text) {
    std::vector<std::string> lines = lines_of(text);
    std::sort(lines.begin(), lines.end());
    return lines;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("every rank finds its place in the environment", "[run]") {
    ProcessResult outcome =
        run(script({"-n", "3"}, "echo $WEFT_RANK of $WEFT_SIZE, $WEFT_LOCAL_RANK of $WEFT_LOCAL_SIZE"));
    CHECK(outcome.status == 0);
    CHECK(outcome.error == "");
    CHECK(sorted_lines(outcome.output) ==
          std::vector<std::string>{"0 of 3, 0 of 3", "1 of 3, 1 of 3", "2 of 3, 2 of 3"});
}

TEST_CASE("all ranks have one unique id of 256 hexadecimal digits, and every job another", "[run]") {
    std::set<std::string> ids;
    for (int job = 0; job < 2; ++job) {
        for (const std::string& id : lines_of(run(script({"-n", "3"}, "echo $WEFT_UNIQUE_ID")).output)) {
            CHECK(id.size() == 256);
            CHECK(id.find_first_not_of("0123456789abcdef") == std::string::npos);
            ids.insert(id);
        }
        CHECK(ids.size() == size_t(job + 1));
    }
}

TEST_CASE("the program's arguments are passed on unchanged, in any form", "[run]") {
    std::vector<std::string> odd = {"-n", "7", "--label", "--", "run", "[1,2]", "", "a b", "--help"};
    std::string expected;
    for (const std::string& word : odd) expected += "<" + word + ">";
    for (const std::vector<std::string>& between : {std::vector<std::string>{}, std::vector<std::string>{"--"}}) {
        std::vector<std::string> arguments = {WEFT_COMMAND, "run", "-n", "1"};
        arguments.insert(arguments.end(), between.begin(), between.end());
        arguments.insert(arguments.end(), {"printf", "<%s>"});
        arguments.insert(arguments.end(), odd.begin(), odd.end());
        ProcessResult outcome = run(arguments);
        CHECK(outcome.status == 0);
        CHECK(outcome.output == expected);
    }
}

TEST_CASE("a rank's exit status becomes the launcher's", "[run]") {
    ProcessResult outcome = run(script({"-n", "3"}, "test $WEFT_RANK != 1 || exit 7"));
    CHECK(outcome.status == 7);
    CHECK(contains(outcome.error, "weft run: rank 1 (pid "));
    CHECK(contains(outcome.error, ") exited with status 7\n"));
}

TEST_CASE("a rank that a signal ends is named with the signal", "[run]") {
    ProcessResult outcome = run(script({"-n", "3"}, "test $WEFT_RANK != 2 || kill -KILL $$"));
    CHECK(outcome.status == 128 + SIGKILL);
    CHECK(contains(outcome.error, "weft run: rank 2 (pid "));
    CHECK(contains(outcome.error, ") was killed by signal 9 (SIGKILL)\n"));
}

TEST_CASE("the first failure counts, not those that follow from it", "[run]") {
    // The others fail, in their own way, when they are asked to end.
    ProcessResult outcome =
        run(script({"-n", "4", "--grace", "0.2"},
                   "test $WEFT_RANK = 3 && exit 9; trap 'exit 5' TERM; while :; do sleep 0.05; done"));
    CHECK(outcome.status == 9);
    CHECK(contains(outcome.error, "rank 3 (pid "));
    CHECK(contains(outcome.error, "ending ranks 0, 1, 2, 0.2 s after the failure"));
    CHECK(!contains(outcome.error, "status 5"));
}

TEST_CASE("the others may still print after a failure", "[run]") {
    Folder folder;
    std::string path = folder.path.string();
    // Rank 0 speaks after the launcher has reaped rank 1.
    ProcessResult outcome =
        run(script({"-n", "2", "--grace", "120"},
                   "cd " + path +
                       "; if [ $WEFT_RANK = 1 ]; then echo $$ > pid.tmp; mv pid.tmp pid; exit 3; fi;"
                       "while ! [ -e pid ] || [ -e /proc/$(cat pid) ]; do sleep 0.01; done; echo I saw it"));
    CHECK(outcome.status == 3);
    CHECK(outcome.output == "I saw it\n");
    CHECK(!contains(outcome.error, "ending"));
}

TEST_CASE("the others have five seconds by default", "[run]") {
    ProcessResult outcome = run(script({"-n", "2"}, "test $WEFT_RANK = 1 && exit 3; exec sleep 1000"));
    CHECK(outcome.status == 3);
    CHECK(contains(outcome.error, "ending rank 0, 5 s after the failure"));
}

TEST_CASE("ranks that do not end when asked are killed", "[run]") {
    Folder folder;
    // Rank 0 fails while the others ignore signals.
    ProcessResult outcome = run(script({"-n", "3", "--grace", "0.2"},
                                       "cd " + folder.path.string() +
                                           "; trap '' TERM; echo $$; if [ $WEFT_RANK = 0 ]; then "
                                           "while ! [ -e deaf1 ] || ! [ -e deaf2 ]; do sleep 0.01; done; exit 4; fi;"
                                           "touch deaf$WEFT_RANK; while :; do sleep 0.05; done"));
    CHECK(outcome.status == 4);
    CHECK(contains(outcome.error, "killing ranks 1, 2, 0.2 s after SIGTERM"));
    for (const std::string& pid : lines_of(outcome.output)) CHECK(process_state(std::stoi(pid)) == 'X');
}

TEST_CASE("a stopped rank ends, too", "[run]") {
    ProcessResult outcome = run(script({"-n", "2", "--grace", "0.2"}, "test $WEFT_RANK = 0 && kill -STOP $$; exit 6"));
    CHECK(outcome.status == 6);
}

TEST_CASE("with --no-kill the others continue", "[run]") {
    Folder folder;
    std::string path = folder.path.string();
    ProcessResult outcome =
        run(script({"-n", "2", "--no-kill", "--grace", "0"},
                   "cd " + path +
                       "; if [ $WEFT_RANK = 1 ]; then echo $$ > pid.tmp; mv pid.tmp pid; exit 3; fi;"
                       "while ! [ -e pid ] || [ -e /proc/$(cat pid) ]; do sleep 0.01; done;"
                       "sleep 0.2; echo alive"));
    CHECK(outcome.status == 3);
    CHECK(outcome.output == "alive\n");
}

TEST_CASE("with --no-kill, too, processes that ranks leave behind end with the job", "[run]") {
    const ProcessResult outcome = run(script({"-n", "1", "--no-kill"}, "sleep 1000 & echo $!; exit 0"));
    CHECK(outcome.status == 0);
    CHECK(process_state(std::stoi(outcome.output)) == 'X');
}

TEST_CASE("a job that takes too long is ended", "[run]") {
    ProcessResult outcome = run({WEFT_COMMAND, "run", "-n", "2", "--timeout", "0.2", "--grace", "60", "sleep", "1000"});
    CHECK(outcome.status == 124);
    CHECK(outcome.error == "weft run: the time limit of 0.2 s is over; ending ranks 0, 1\n");
}

TEST_CASE("a program that cannot be started is an error with a shell's status", "[run]") {
    ProcessResult outcome = run({WEFT_COMMAND, "run", "-n", "3", "no_such_program"});
    CHECK(outcome.status == 127);
    CHECK(outcome.error == "weft run: cannot start no_such_program: no such program in PATH\n");
    outcome = run({WEFT_COMMAND, "run", "-n", "3", "./no/such/program"});
    CHECK(outcome.status == 127);
    CHECK(outcome.error ==
          "weft run: cannot start ./no/such/program: it, or the interpreter that its first line names, does "
          "not exist\n");
    outcome = run({WEFT_COMMAND, "run", "-n", "3", "/etc/passwd"});
    CHECK(outcome.status == 126);
    CHECK(outcome.error == "weft run: cannot start /etc/passwd: Permission denied (errno 13)\n");
}

TEST_CASE("a misspelt algorithm is reported once, and no rank begins", "[run]") {
    const ProcessResult outcome = run({WEFT_COMMAND, "run", "-n", "4", "echo", "begun"}, {"WEFT_ALGO=rign"});
    CHECK(outcome.status != 0);
    CHECK(outcome.output == "");
    const size_t first = outcome.error.find("rign");
    REQUIRE(first != std::string::npos);
    CHECK(outcome.error.find("WEFT_ALGO") != std::string::npos);
    CHECK(outcome.error.find("rign", first + 1) == std::string::npos);
    CHECK(run({WEFT_COMMAND, "run", "-n", "2", "true"}, {"WEFT_ALGO=all_reduce@-1M:two_shot;^ring"}).status == 0);
}

TEST_CASE("a wrong command line is an error", "[run]") {
    const std::string weft = WEFT_COMMAND;
    struct Misuse {
        std::vector<std::string> arguments;
        std::string sentence;
    };
    std::vector<Misuse> all = {
        {{weft, "run", "true"}, "--ranks is required"},
        {{weft, "run", "-n", "0", "true"}, "--ranks: Value 0 not in range 1 to 65536"},
        {{weft, "run", "-n", "two", "true"}, "two"},
        {{weft, "run", "-n", "2"}, "the program is missing"},
        {{weft, "run", "-n", "2", "--"}, "the program is missing"},
        {{weft, "run", "-n", "2", "--labels", "true"}, "--labels is not an option of weft run"},
        {{weft, "run", "-n", "2", "--bind", "socket", "true"}, "socket not in {core,none}"},
        {{weft, "run", "-n", "2", "--timeout", "-1", "true"}, "--timeout: -1 is not a number of seconds"},
        {{weft, "run", "-n", "2", "--timeout", "nan", "true"}, "--timeout: nan is not a number of seconds"},
        {{weft, "run", "-n", "2", "--timeout", "inf", "true"}, "--timeout: inf is not a number of seconds"},
        {{weft, "run", "-n", "2", "--timeout", "1e18", "true"}, "--timeout: 1e18 is not a number of seconds"},
        {{weft, "run", "-n", "2", "--grace", "nan", "true"}, "nan is not a number of seconds"},
        {{weft}, "A subcommand is required"},
        {{weft, "fly"}, "weft: fly is not a command"},
    };
    for (const Misuse& misuse : all) {
        ProcessResult outcome = run(misuse.arguments);
        INFO(outcome.error);
        CHECK(outcome.status == 2);
        CHECK(contains(outcome.error, misuse.sentence));
        CHECK(outcome.output == "");
    }
}

TEST_CASE("ranks are bound to the processors allowed, one each, in turns", "[run]") {
    cpu_set_t ours;
    REQUIRE(sched_getaffinity(0, sizeof ours, &ours) == 0);
    const int allowed = CPU_COUNT(&ours);
    const std::string tell = "echo $WEFT_RANK $(sed -n 's/Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)";
    auto processors = [&](const std::vector<std::string>& arguments, int ranks) {
        std::vector<std::string> of_rank(static_cast<size_t>(ranks));
        for (const std::string& line : lines_of(run(arguments).output)) {
            of_rank.at(size_t(std::stoi(line))) = line.substr(line.find(' ') + 1);
        }
        return of_rank;
    };
    std::vector<std::string> bound = processors(script({"-n", std::to_string(allowed + 1)}, tell), allowed + 1);
    for (int rank = 0; rank < allowed; ++rank) CHECK(CPU_ISSET(std::stoi(bound[size_t(rank)]), &ours));
    CHECK(std::set<std::string>(bound.begin(), bound.end() - 1).size() == size_t(allowed));
    CHECK(bound.front() == bound.back());

    std::string unbound = run({"sh", "-c", "sed -n 's/Cpus_allowed_list:[[:space:]]*//p' /proc/self/status"}).output;
    for (const std::string& list : processors(script({"-n", "2", "--bind", "none"}, tell), 2))
        CHECK(list + "\n" == unbound);

    // Within the launcher's own restriction.
    std::vector<std::string> restricted = script({"-n", "2"}, tell);
    restricted.insert(restricted.begin(), {"taskset", "-c", bound[size_t(allowed) - 1]});
    for (const std::string& list : processors(restricted, 2)) CHECK(list == bound[size_t(allowed) - 1]);
}

TEST_CASE("64 ranks start, end, and leave nothing", "[run]") {
    ProcessResult outcome = run({WEFT_COMMAND, "run", "-n", "64", "true"});
    CHECK(outcome.status == 0);
    CHECK(outcome.output + outcome.error == "");
    outcome = run(script({"-n", "64", "--label"}, "echo $$"));
    CHECK(outcome.status == 0);
    std::vector<std::string> lines = lines_of(outcome.output);
    CHECK(lines.size() == 64);
    for (const std::string& line : lines) CHECK(process_state(std::stoi(line.substr(line.find(' ')))) == 'X');
}

TEST_CASE("a process that a rank leaves running is ended with the job", "[run]") {
    // One that ends when asked, one that must be killed, and one whose output has no reader any more.
    ProcessResult outcome =
        run(script({"-n", "2", "--grace", "0.2", "--label"},
                   "sleep 1000 & echo $!; sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' & echo $!"));
    CHECK(outcome.status == 0);
    std::vector<std::string> lines = lines_of(outcome.output);
    CHECK(lines.size() == 4);
    for (const std::string& line : lines) CHECK(process_state(std::stoi(line.substr(line.find(' ')))) == 'X');
}

TEST_CASE("a low limit of open files is reported or enough, and ranks find their own limit", "[run]") {
    ProcessResult outcome = run({"sh", "-c", "ulimit -n 40; exec " WEFT_COMMAND " run -n 20 true"});
    CHECK(outcome.status == 1);
    CHECK(contains(outcome.error, "20 ranks need 52 open files, but the hard limit is 40"));
    CHECK(contains(outcome.error, "[command.system]\n"));
    outcome = run({"sh", "-c", "ulimit -Sn 40; exec " WEFT_COMMAND " run -n 20 --label sh -c 'ulimit -Sn'"});
    CHECK(outcome.status == 0);
    std::vector<std::string> lines = lines_of(outcome.output);
    CHECK(lines.size() == 20);
    for (const std::string& line : lines) CHECK(line.substr(line.find(' ')) == " 40");
}
