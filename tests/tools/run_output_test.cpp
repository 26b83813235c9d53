// run_output_test.cpp: the ranks' standard input, and their output with and without labels.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/folder.hpp"
#include "tests/subprocess.hpp"

using namespace weft::internal::test;

namespace {

std::vector<std::string> labelled(const std::string& ranks, const std::string& text) {
    return {WEFT_COMMAND, "run", "-n", ranks, "--label", "sh", "-c", text};
}

}  // namespace

TEST_CASE("rank 0 reads the launcher's input, the others read nothing", "[run]") {
    ProcessResult outcome = run(labelled("3", "cat; echo end"), {}, "one\ntwo\n");
    CHECK(outcome.status == 0);
    std::vector<std::string> lines = lines_of(outcome.output);
    std::sort(lines.begin(), lines.end());
    CHECK(lines == std::vector<std::string>{"[0] end", "[0] one", "[0] two", "[1] end", "[2] end"});
}

TEST_CASE("labels stand before each line, and output and errors stay apart", "[run]") {
    ProcessResult outcome = run(labelled("2", "echo out; echo err >&2"));
    CHECK(outcome.status == 0);
    CHECK((outcome.output == "[0] out\n[1] out\n" || outcome.output == "[1] out\n[0] out\n"));
    CHECK((outcome.error == "[0] err\n[1] err\n" || outcome.error == "[1] err\n[0] err\n"));
}

TEST_CASE("empty lines are labelled, and an unfinished last line is finished", "[run]") {
    CHECK(run(labelled("1", "printf 'a\\n\\nb'")).output == "[0] a\n[0] \n[0] b\n");
    CHECK(run(labelled("1", ":")).output == "");
}

TEST_CASE("labelled lines of many ranks are whole and in each rank's order", "[run]") {
    // Written in pieces that respect no line: dd hands over 7 bytes at a time.
    ProcessResult outcome = run(labelled("4", "seq 100000 100999 | dd bs=7 iflag=fullblock status=none"));
    CHECK(outcome.status == 0);
    std::map<std::string, int> next = {{"[0]", 100000}, {"[1]", 100000}, {"[2]", 100000}, {"[3]", 100000}};
    for (const std::string& line : lines_of(outcome.output)) {
        REQUIRE(next.count(line.substr(0, 3)) == 1);
        REQUIRE(line.substr(3) == " " + std::to_string(next[line.substr(0, 3)]++));
    }
    for (const auto& [label, number] : next) CHECK(number == 101000);
}

TEST_CASE("a line longer than any buffer arrives", "[run]") {
    ProcessResult outcome = run(labelled("1", "head -c 300000 /dev/zero | tr '\\0' x"));
    CHECK(outcome.output == "[0] " + std::string(300000, 'x') + "\n");
}

TEST_CASE("a slow reader gets everything", "[run]") {
    // More than the pipe and the launcher's queue hold.
    ProcessResult outcome = run({"sh", "-c", WEFT_COMMAND " run -n 2 --label seq 300000 | (sleep 0.3; wc -l)"});
    CHECK(outcome.output == "600000\n");
}

TEST_CASE("when the reader has gone, the ranks get SIGPIPE", "[run]") {
    ProcessResult outcome = run({"sh", "-c", WEFT_COMMAND " run -n 2 --label --grace 0.1 yes | head -n 1"});
    CHECK((outcome.output == "[0] y\n" || outcome.output == "[1] y\n"));
    CHECK(outcome.error.find("was killed by signal 13 (SIGPIPE)") != std::string::npos);
}

TEST_CASE("output that cannot be written is an error with a status other than 0, of every command", "[run]") {
    const std::vector<std::string> commands = {"--help",
                                               "--version",
                                               "run --help",
                                               "info",
                                               "info --json",
                                               "info explain 1M -n 8",
                                               "topology",
                                               "topology show --synthetic 'package:2 numa:1 l3:1 core:8 pu:2'",
                                               "schedule show ring -n 4",
                                               "schedule simulate ring -n 4",
                                               "tune --ranks 2 --seconds 0.01 --collectives all_reduce -o /dev/null",
                                               "run -n 2 --label echo text",
                                               "perf"};
    for (const std::string& command : commands) {
        INFO(command);
        const ProcessResult outcome = run({"sh", "-c", WEFT_COMMAND " " + command + " >/dev/full"});
        CHECK(outcome.status == 1);
        CHECK(outcome.error.find("No space left on device") != std::string::npos);
    }
    // The sentence has no place either.
    CHECK(run({"sh", "-c", WEFT_COMMAND " info >/dev/full 2>&1"}).status == 1);
    CHECK(run({"sh", "-c", WEFT_COMMAND " nonsense 2>/dev/full"}).status == 2);
    CHECK(run({"sh", "-c", WEFT_COMMAND " run -n 2 --label sh -c 'echo text >&2' 2>/dev/full"}).status == 1);
    const Folder folder;
    const std::string file = folder.path / "no_coll.xml";
    std::ofstream(file) << "<algo name=\"no_coll\" ngpus=\"1\" nchunksperloop=\"1\" proto=\"Simple\" inplace=\"1\">\n"
                           "<gpu id=\"0\" i_chunks=\"1\" o_chunks=\"1\" s_chunks=\"0\"></gpu></algo>\n";
    const std::string check = WEFT_COMMAND " schedule check " + file;
    CHECK(!run({"sh", "-c", check}).error.empty());
    CHECK(run({"sh", "-c", check + " 2>/dev/full"}).status == 0);
    // The output has no reader.
    CHECK(run({"bash", "-c", WEFT_COMMAND " info --json | true; exit ${PIPESTATUS[0]}"}).status != 0);
}

TEST_CASE("a file that does not fit its disk is not left in part, and an old one stays", "[run]") {
    const Folder folder;
    const std::string file = folder.path / "file";
    // A limit of a file's size stands for the disk's.
    const std::string limit = "trap '' XFSZ; ulimit -f 0; cd " + folder.path.string() + "; ";
    const std::vector<std::string> commands = {
        "schedule build ring -n 4 -o file",
        "schedule show ring -n 4 --svg file",
        "topology show --synthetic 'package:2 numa:1 l3:1 core:8 pu:2' --xml file",
        "topology show --synthetic 'package:2 numa:1 l3:1 core:8 pu:2' --svg file",
        "schedule simulate ring -n 4 --trace file",
        "schedule simulate all -n 4 --host cpu-10g --collective all_reduce -b 64 --tune file"};
    for (const bool old : {false, true}) {
        if (old) std::ofstream(file) << "old";
        for (const std::string& command : commands) {
            INFO(command);
            CHECK(run({"sh", "-c", limit + WEFT_COMMAND " " + command + " >/dev/null"}).status == 1);
            const auto left = std::distance(std::filesystem::directory_iterator(folder.path), {});
            CHECK(left == (old ? 1 : 0));
            if (old) CHECK(std::filesystem::file_size(file) == 3);
        }
    }
}

TEST_CASE("the launcher's own lines come after the ranks' earlier output", "[run]") {
    ProcessResult outcome = run(labelled("1", "echo last words >&2; exit 3"));
    CHECK(outcome.error.rfind("[0] last words\nweft run: rank 0 (pid ", 0) == 0);
}
