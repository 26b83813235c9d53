// run_elastic_test.cpp: `weft run --elastic`: the ranks are started again after a failure, as often and as many as
// allowed, and nothing stays behind.
#include <signal.h>

#include <set>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/folder.hpp"
#include "tests/subprocess.hpp"

using namespace weft::internal::test;

namespace {

// `weft run --elastic` with these options, of a shell script.
std::vector<std::string> elastic_script(std::vector<std::string> options, const std::string& text) {
    std::vector<std::string> arguments = {WEFT_COMMAND, "run", "--grace", "0.2", "--elastic"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.insert(arguments.end(), {"sh", "-c", text});
    return arguments;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

size_t times(const std::string& text, const std::string& part) {
    size_t count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
    return count;
}

void check_ended(const std::string& output) {
    size_t ranks = 0;
    for (const std::string& line : lines_of(output)) {
        if (line.rfind("rank ", 0) != 0) continue;
        ++ranks;
        CHECK(process_state(std::stoi(line.substr(5))) == 'X');
    }
    CHECK(ranks > 0);
}

}  // namespace

TEST_CASE("after the death of a rank all ranks are started again, with another unique id", "[run]") {
    const ProcessResult outcome = run(elastic_script(
        {"1:3", "-n", "3"},
        "echo rank $$; echo place $WEFT_RANK of $WEFT_SIZE start $WEFT_RESTART_COUNT of $WEFT_MAX_RESTARTS; "
        "echo id $WEFT_UNIQUE_ID; test $WEFT_RESTART_COUNT = 1 && exit 0; "
        "test $WEFT_RANK = 1 && kill -KILL $$; exec sleep 1000"));
    CHECK(outcome.status == 0);
    CHECK(has(outcome.error, "weft run: rank 1 (pid "));
    CHECK(has(outcome.error, ") on "));
    CHECK(has(outcome.error, " was killed by signal 9 (SIGKILL)\n"));
    CHECK(times(outcome.error, "weft run: restart 1 of 3 with 3 ranks\n") == 1);
    CHECK(!has(outcome.error, "restart 2"));
    std::set<std::string> places, ids;
    for (const std::string& line : lines_of(outcome.output)) {
        if (line.rfind("place ", 0) == 0) places.insert(line);
        if (line.rfind("id ", 0) == 0) ids.insert(line);
    }
    CHECK(ids.size() == 2);
    CHECK(places.count("place 1 of 3 start 0 of 3") == 1);
    for (const char* rank : {"0", "1", "2"})
        CHECK(places.count("place " + std::string(rank) + " of 3 start 1 of 3") == 1);
    check_ended(outcome.output);
}

TEST_CASE("a rank that leaves a status is replaced like one that a signal ends", "[run]") {
    const ProcessResult outcome =
        run(elastic_script({"2:2"}, "test $WEFT_RESTART_COUNT = 2 || test $WEFT_RANK = 0 || exit 7"));
    CHECK(outcome.status == 0);  // rank 1 has failed twice in turn, but 2 ranks are the least
    CHECK(times(outcome.error, "exited with status 7") >= 2);
    CHECK(has(outcome.error, "restart 2 of 3 with 2 ranks"));
}

TEST_CASE("with --shrink the survivors go on, down to the least number", "[run]") {
    const ProcessResult outcome = run(elastic_script({"2:4", "-n", "4", "--shrink", "--max-restarts", "9"},
                                                     "echo size $WEFT_SIZE; test $WEFT_RESTART_COUNT = 4 && exit 0; "
                                                     "test $WEFT_RANK = 0 && exit 5; exec sleep 1000"));
    CHECK(outcome.status == 0);
    for (const char* text : {"restart 1 of 9 with 3 ranks", "restart 2 of 9 with 2 ranks",
                             "restart 3 of 9 with 2 ranks", "restart 4 of 9 with 2 ranks"})
        CHECK(times(outcome.error, text) == 1);
    CHECK(times(outcome.output, "size 2") >= 2);
    CHECK(!has(outcome.output, "size 1"));
}

TEST_CASE("ranks that die together by signals are lost together", "[run]") {
    // Nobody needs the launcher to end it, so the grace period does not matter.
    const ProcessResult outcome =
        run({WEFT_COMMAND, "run", "--grace", "100", "--elastic", "1:4", "--shrink", "sh", "-c",
             "test $WEFT_SIZE = 2 && exit 0; case $WEFT_RANK in 1|2) kill -KILL $$;; esac; exit 1"});
    CHECK(outcome.status == 0);
    CHECK(has(outcome.error, "restart 1 of 3 with 2 ranks"));
    CHECK(!has(outcome.error, "restart 2"));
}

TEST_CASE("ranks that leave a status together are lost together, and those that follow them are not", "[run]") {
    const auto outcome_of = [](const char* failing) {
        return run({WEFT_COMMAND, "run", "--grace", "100", "--elastic", "1:4", "--shrink", ELASTIC_RANK, failing});
    };
    const ProcessResult two = outcome_of("12");
    INFO(two.error);
    CHECK(two.status == 0);
    CHECK(has(two.error, "restart 1 of 3 with 2 ranks"));
    CHECK(!has(two.error, "restart 2"));
    // Of one lost rank, three others follow it by their status.
    CHECK(has(outcome_of("2").error, "restart 1 of 3 with 3 ranks"));
}

TEST_CASE("with --grow-after a later restart counts from all ranks again", "[run]") {
    const std::string script = "test $WEFT_RESTART_COUNT = 3 && exit 0; test $WEFT_RANK = 0 && exit 5; exec sleep 1000";
    const ProcessResult grown = run(elastic_script({"1:4", "-n", "3", "--shrink", "--grow-after", "0"}, script));
    CHECK(grown.status == 0);
    for (const char* text :
         {"restart 1 of 3 with 3 ranks", "restart 2 of 3 with 3 ranks", "restart 3 of 3 with 3 ranks"})
        CHECK(has(grown.error, text));
    const ProcessResult early = run(elastic_script({"1:4", "-n", "3", "--shrink", "--grow-after", "1000"}, script));
    CHECK(early.status == 0);
    CHECK(has(early.error, "restart 2 of 3 with 1 rank\n"));
}

TEST_CASE("a rank that fails twice in turn gets no replacement", "[run]") {
    const ProcessResult outcome = run(elastic_script(
        {"1:3", "-n", "3"}, "test $WEFT_SIZE = 2 && exit 0; test $WEFT_RANK = 2 && exit 5; exec sleep 1000"));
    CHECK(outcome.status == 0);
    CHECK(has(outcome.error, "restart 1 of 3 with 3 ranks"));
    CHECK(has(outcome.error, "restart 2 of 3 with 2 ranks"));
    CHECK(!has(outcome.error, "restart 3"));
}

TEST_CASE("if no restart is left, the failures are listed and the last status counts", "[run]") {
    const ProcessResult outcome =
        run(elastic_script({"1:1", "--max-restarts", "2"}, "exit $((WEFT_RESTART_COUNT + 4))"));
    CHECK(outcome.status == 6);
    CHECK(has(outcome.error, "weft run: no restart is left (2 of 2, --max-restarts). The failures:\n"));
    for (int generation = 0; generation < 3; ++generation) {
        const std::string start = "weft run: generation " + std::to_string(generation) + " of 1 rank: rank 0 (pid ";
        CHECK(times(outcome.error, start) == 1);
        CHECK(times(outcome.error, "exited with status " + std::to_string(generation + 4) + "\n") == 2);
    }
    CHECK(run(elastic_script({"1:1", "--max-restarts", "0"}, "exit 3")).status == 3);
}

TEST_CASE("a signal to the launcher ends an elastic job without a restart", "[run]") {
    // One script ends by the signal, the other one ignores it and must be killed.
    for (const char* text :
         {"echo rank $$; while :; do sleep 0.02; done", "trap '' INT TERM; echo rank $$; while :; do sleep 0.02; done"})
        for (int signal : {SIGINT, SIGTERM}) {
            Subprocess job(elastic_script({"1:2", "-n", "2"}, text));
            REQUIRE(job.says("rank", 2));
            job.kill(signal);
            CHECK(job.wait() > 128);
            CHECK(!has(job.error(), "restart"));
            check_ended(job.output());
        }
}

TEST_CASE("a program that cannot be started, and the time limit, end an elastic job", "[run]") {
    ProcessResult outcome = run({WEFT_COMMAND, "run", "--elastic", "1:3", "no_such_program"});
    CHECK(outcome.status == 127);
    CHECK(!has(outcome.error, "restart"));
    outcome = run({WEFT_COMMAND, "run", "--elastic", "1:2", "--timeout", "0.2", "--grace", "60", "sleep", "1000"});
    CHECK(outcome.status == 124);
    CHECK(!has(outcome.error, "restart"));
}

TEST_CASE("processes that ranks leave behind end before the restart", "[run]") {
    Folder folder;
    const std::string left = (folder.path / "left").string();
    const ProcessResult outcome =
        run(elastic_script({"1:1"}, "if [ $WEFT_RESTART_COUNT = 0 ]; then sleep 1000 & echo $! > " + left +
                                        "; exit 3; fi; ! [ -e /proc/$(cat " + left + ") ]"));
    CHECK(outcome.status == 0);
    CHECK(has(outcome.error, "restart 1 of 3 with 1 rank\n"));
}

TEST_CASE("wrong elastic options are errors", "[run]") {
    const std::vector<std::pair<std::vector<std::string>, std::string>> all = {
        {{"--elastic", "3:2"}, "--elastic is 3:2; MIN must not be above MAX"},
        {{"--elastic", "0:2"}, "--elastic is 0:2; its numbers must be 1 to 65536"},
        {{"--elastic", "1:0"}, "--elastic is 1:0; its numbers must be 1 to 65536"},
        {{"--elastic", "-1:2"}, "1 to 65536"},
        {{"--elastic", "1:65537"}, "1 to 65536"},
        {{"--elastic", "2"}, "--elastic is 2; it must be MIN:MAX"},
        {{"--elastic", "a:2"}, "it must be MIN:MAX"},
        {{"--elastic", "1:2x"}, "it must be MIN:MAX"},
        {{"--elastic", ":"}, "it must be MIN:MAX"},
        {{"--elastic", "2:3", "-n", "4"}, "-n is 4; --elastic 2:3 allows 2 to 3 ranks"},
        {{"--elastic", "2:3", "-n", "1"}, "-n is 1; --elastic 2:3 allows 2 to 3 ranks"},
        {{"--elastic", "2:3", "--no-kill"}, "--elastic and --no-kill exclude each other"},
        {{"--elastic", "2:3", "--max-restarts", "-1"}, "--max-restarts"},
        {{"-n", "2", "--max-restarts", "1"}, "--max-restarts, --shrink and --grow-after are for a job with --elastic"},
        {{"-n", "2", "--shrink"}, "--max-restarts, --shrink and --grow-after are for a job with --elastic"},
    };
    for (const auto& [options, sentence] : all) {
        std::vector<std::string> arguments = {WEFT_COMMAND, "run"};
        arguments.insert(arguments.end(), options.begin(), options.end());
        arguments.insert(arguments.end(), {"echo", "begun"});
        const ProcessResult outcome = run(arguments);
        INFO(outcome.error);
        CHECK(outcome.status == 2);
        CHECK(has(outcome.error, sentence));
        CHECK(outcome.output == "");
    }
}
