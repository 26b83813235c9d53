// log_test.cpp: which lines are shown, where they go, and that none is torn. A real program logs: LOG_WRITER.
#include "src/base/log.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/folder.hpp"
#include "tests/subprocess.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

// Everything the program logs under these variables, without the prefixes.
std::vector<std::string> texts(std::vector<std::string> variables) {
    std::vector<std::string> texts;
    for (const std::string& line : lines_of(run({LOG_WRITER}, std::move(variables)).error)) {
        texts.push_back(line.substr(line.find("WEFT ") + strlen("WEFT ")));
    }
    return texts;
}

using Texts = std::vector<std::string>;
const Texts warnings = {"WARN warn coll", "WARN of a rank", "WARN one", "WARN two"};

std::string content(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

Options with(std::string debug, std::string subsys, Origin origin = Origin::environment) {
    Options options;
    options.debug = std::move(debug);
    options.debug_subsys = std::move(subsys);
    options.origins[int(OptionIndex::debug)] = origin;
    options.origins[int(OptionIndex::debug_subsys)] = origin;
    return options;
}

}  // namespace

TEST_CASE("warnings are shown unasked, and nothing else", "[log]") { CHECK(texts({}) == warnings); }

TEST_CASE("each level shows itself and graver ones", "[log]") {
    CHECK(texts({"WEFT_DEBUG=NONE"}) == Texts{});
    CHECK(texts({"WEFT_DEBUG=version"}) == Texts{"VERSION version line"});
    CHECK(texts({"WEFT_DEBUG=Warn"}) ==
          Texts{"VERSION version line", "WARN warn coll", "WARN of a rank", "WARN one", "WARN two"});
    // Calls of collectives are too many to be shown by default.
    CHECK(texts({"WEFT_DEBUG=INFO"}) == Texts{"VERSION version line", "WARN warn coll", "INFO info init",
                                              "INFO info net", "WARN of a rank", "WARN one", "WARN two"});
    CHECK(texts({"NCCL_DEBUG=TRACE", "NCCL_DEBUG_SUBSYS=INIT"}) == Texts{"VERSION version line", "WARN warn coll",
                                                                         "INFO info init", "TRACE trace init",
                                                                         "WARN of a rank", "WARN one", "WARN two"});
}

TEST_CASE("categories are added and taken away in order", "[log]") {
    auto shown = [](const char* list) {
        LogSettings settings = make_log_settings(with("INFO", list));
        CHECK(settings.warnings.empty());
        std::string names;
        if (settings.wants(LogLevel::info, LogCategory::init)) names += "init ";
        if (settings.wants(LogLevel::info, LogCategory::coll)) names += "coll ";
        if (settings.wants(LogLevel::info, LogCategory::net)) names += "net ";
        if (settings.wants(LogLevel::info, LogCategory::mem)) names += "mem ";
        return names;
    };
    CHECK(shown("") == "init net ");
    CHECK(shown("INIT,COLL") == "init coll ");
    CHECK(shown("coll") == "coll ");
    CHECK(shown("ALL") == "init coll net mem ");
    CHECK(shown("ALL,^NET") == "init coll mem ");
    CHECK(shown("^NET") == "init coll mem ");
    CHECK(shown("INIT,COLL,^NET") == "init coll ");
    CHECK(shown("INIT,^INIT,MEM") == "mem ");
    CHECK(shown(",,INIT,") == "init ");
}

TEST_CASE("an unknown level or category gets a sentence, but NCCL's own words pass", "[log]") {
    LogSettings settings = make_log_settings(with("LOUD", "INIT,GRAPH"));
    REQUIRE(settings.warnings.size() == 2);
    CHECK(settings.warnings[1] ==
          "WEFT_DEBUG is LOUD, which is not a level; use NONE, VERSION, WARN, INFO or TRACE. WARN is taken");
    CHECK(
        settings.warnings[0] ==
        "WEFT_DEBUG_SUBSYS names GRAPH, which is not a category; there are INIT, COLL, ALGO, NET, SHM, MEM, ENV, ALL");
    CHECK(settings.wants(LogLevel::warn, LogCategory::init));
    CHECK(!settings.wants(LogLevel::info, LogCategory::init));
    CHECK(make_log_settings(with("ABORT", "INIT,GRAPH,^ras", Origin::alias)).warnings.empty());
    CHECK(make_log_settings(with("LOUD", "INIT,GRAHP", Origin::alias)).warnings.size() == 2);
}

TEST_CASE("a line names host, process, thread, rank and level", "[log]") {
    Subprocess program({LOG_WRITER});
    program.wait();
    std::vector<std::string> lines = lines_of(program.error());
    std::string pid = std::to_string(program.pid());
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    std::string prefix = std::string(host).substr(0, std::string(host).find('.')) + ":" + pid + ":" + pid;
    REQUIRE(lines.size() == 4);
    CHECK(lines[0] == prefix + " WEFT WARN warn coll");
    CHECK(lines[1] == prefix + " [3] WEFT WARN of a rank");
    CHECK(lines[2] == prefix + " WEFT WARN one");
    CHECK(lines[3] == prefix + " WEFT WARN two");
}

TEST_CASE("an unwanted line computes no argument", "[log]") {
    CHECK(run({LOG_WRITER, "unwanted"}).status == 0);
    CHECK(run({LOG_WRITER, "unwanted"}, {"WEFT_DEBUG=TRACE", "WEFT_DEBUG_FILE=/dev/null"}).status == 10);
}

TEST_CASE("lines of many threads and processes on one file are whole and each there once", "[log]") {
    Folder folder;
    std::string variable = "WEFT_DEBUG_FILE=" + (folder.path / "log").string();
    Subprocess first({LOG_WRITER, "threads", "4", "500"}, {variable});
    Subprocess second({LOG_WRITER, "threads", "4", "500"}, {variable});
    CHECK(first.wait() == 0);
    CHECK(second.wait() == 0);
    std::map<std::string, int> seen;
    std::regex form("[^:]+:([0-9]+):[0-9]+ WEFT WARN thread ([0-9]+) line ([0-9]+) (\\.*)");
    for (const std::string& line : lines_of(content(folder.path / "log"))) {
        std::smatch match;
        REQUIRE(std::regex_match(line, match, form));
        REQUIRE(match[4].length() == std::stoi(match[3]) % 300);
        ++seen[match[1].str() + " " + match[2].str() + " " + match[3].str()];
    }
    CHECK(seen.size() == 2 * 4 * 500);
    for (const auto& [line, times] : seen) REQUIRE(times == 1);
}

TEST_CASE("a log file's name may hold host and process", "[log]") {
    Folder folder;
    Subprocess program({LOG_WRITER}, {"WEFT_DEBUG_FILE=" + (folder.path / "%h.%p.100%%.%x").string()});
    program.wait();
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    std::string name = std::string(host).substr(0, std::string(host).find('.')) + "." + std::to_string(program.pid());
    CHECK(lines_of(content(folder.path / (name + ".100%.%x"))).size() == 4);
    CHECK(program.error().empty());
}

TEST_CASE("a log file that cannot be written is said once, and stderr serves", "[log]") {
    ProcessResult outcome = run({LOG_WRITER}, {"WEFT_DEBUG_FILE=/nonexistent/folder/log"});
    std::vector<std::string> lines = lines_of(outcome.error);
    REQUIRE(lines.size() == 5);
    CHECK(
        lines[0].find("WEFT WARN cannot write the log to /nonexistent/folder/log: No such file or directory (errno 2); "
                      "stderr is used") != std::string::npos);
}

TEST_CASE("the first line is preceded by warnings about the environment", "[log]") {
    std::vector<std::string> all = texts({"WEFT_DEBUGG=INFO"});
    REQUIRE(all.size() == 5);
    CHECK(all[0] == "WARN WEFT_DEBUGG is not an option; did you mean WEFT_DEBUG?");
    CHECK(texts({"WEFT_DEBUGG=INFO", "WEFT_DEBUG=NONE"}).empty());
}

TEST_CASE("a child made by fork logs under its own pid", "[log]") {
    std::vector<std::string> lines = lines_of(run({LOG_WRITER, "fork"}).error);
    REQUIRE(lines.size() == 2);
    CHECK(lines[0].find("WARN parent") != std::string::npos);
    CHECK(lines[1].find("WARN child") != std::string::npos);
    CHECK(lines[0].substr(0, lines[0].find(" ")) != lines[1].substr(0, lines[1].find(" ")));
}
