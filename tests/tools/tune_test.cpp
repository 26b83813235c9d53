// tune_test.cpp: `weft tune` from start to end, with little time: its use of times, and its errors. No test asks which
// algorithm is fastest.
#include <fstream>
#include <sstream>
#include <string>

#include "src/registry.hpp"
#include "src/selector/built_in_costs.hpp"
#include "src/selector/selector.hpp"
#include "src/selector/tuning_file.hpp"
#include "src/selector/tuning_text.hpp"
#include "tests/catch.hpp"
#include "tests/error.hpp"
#include "tests/folder.hpp"
#include "tests/subprocess.hpp"
#include "tools/tune_judgement.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using Catch::Contains;

namespace {

ProcessResult tune(std::vector<std::string> arguments, std::vector<std::string> variables = {}) {
    arguments.insert(arguments.begin(), {WEFT_COMMAND, "tune"});
    return run(std::move(arguments), std::move(variables));
}

// The ranks of a program of Weft's, on a host.
ProcessResult run_program(std::vector<std::string> variables, const char* ranks = "2") {
    return run({WEFT_COMMAND, "run", "-n", ranks, WEFT_COMMAND, "tune", "--as-rank", "--seconds", "0.01",
                "--collectives", "all_gather", "--most", "64"},
               std::move(variables));
}

std::string content(const std::filesystem::path& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
}

tools::TunedTime time_of(bool held_out, size_t bytes, const char* algorithm, double us) {
    return {Collective::all_reduce, held_out, bytes, algorithm, us};
}

}  // namespace

TEST_CASE("the ranks that are measured copy between processes as the file records it", "[tune]") {
    const Folder folder;
    const std::string file = folder.path / "tune.json";
    const std::vector<std::string> work = {"--seconds", "0.1", "--collectives", "all_gather",
                                           "--least",   "64K", "--most",        "64K"};
    const auto with = [&](std::vector<std::string> words) {
        words.insert(words.end(), work.begin(), work.end());
        return words;
    };
    // The predicted time of all_pairs, which depends on it.
    const auto prediction = [](const std::string& log) {
        const size_t at = log.find("all_pairs over shm, ");
        return log.substr(at, log.find(" us", at) - at);
    };
    for (const char* copies : {"0", "1"}) {
        const std::vector<std::string> variables = {std::string("WEFT_CROSS_MEMORY=") + copies, "WEFT_DEBUG=INFO"};
        const ProcessResult measured = tune(with({"-o", file, "--ranks", "2", "--transports", "shm"}), variables),
                            ranks = run(with({WEFT_COMMAND, "run", "-n", "2", WEFT_COMMAND, "tune", "--as-rank"}),
                                        variables);
        INFO(copies << measured.output << measured.error << ranks.error);
        REQUIRE(measured.status == 0);
        CHECK(measured.error.find("all_pairs over shm, ") != std::string::npos);
        CHECK(prediction(measured.error) == prediction(ranks.error));
    }
}

TEST_CASE("measurements are written, read back, explained and used", "[tune]") {
    const Folder folder;
    const std::string file = folder.path / "tune.json";
    const ProcessResult outcome =
        tune({"-o", file, "--seconds", "0.4", "--ranks", "2 3", "--collectives", "all_gather,barrier", "--most", "4K"});
    INFO(outcome.output << outcome.error);
    REQUIRE(outcome.status == 0);
    CHECK(outcome.error == "");
    CHECK_THAT(outcome.output, Contains("measures 3 ranks over tcp") && Contains("WEFT_TUNE_FILE=" + file));
    CHECK_THAT(outcome.output, Contains("    3  tcp        all_gather ") && Contains("before") && Contains("after"));
    CHECK_THAT(outcome.output, Contains("    3  tcp        barrier "));
    CHECK(outcome.output.find("all_reduce") == std::string::npos);

    const auto tuning = read_tuning(content(file));
    REQUIRE(tuning);
    for (const int ranks : {2, 3})
        for (const int hosts : {1, ranks})
            for (const Collective collective : {Collective::all_gather, Collective::barrier}) {
                const Layout layout = layout_in_blocks(ranks, hosts);
                const char* name = collective == Collective::barrier ? "dissemination" : "ring";
                const Tuning::Curve* curve = tuning->nearest(collective, name, layout);
                REQUIRE(curve);
                CHECK(curve->ranks == ranks);
                CHECK(curve->hosts == hosts);
                CHECK(curve->apart.has_value() == (hosts == 1));
                CHECK(curve->points.size() == (collective == Collective::barrier ? 1 : 4));
            }

    const ProcessResult explained = run(
        {WEFT_COMMAND, "info", "explain", "512", "-n", "3", "--collective", "all_gather"}, {"WEFT_TUNE_FILE=" + file});
    CHECK_THAT(explained.output, Contains("us measured") && Contains("least time that was measured"));
    const std::vector<std::string> logged = {"WEFT_DEBUG=INFO", "WEFT_DEBUG_SUBSYS=ALGO"};
    CHECK_THAT(run_program({"WEFT_TUNE_FILE=" + file, logged[0], logged[1]}).error, Contains(" us measured"));
    const std::string built_in = run_program({logged[0], logged[1]}).error;
    CHECK_THAT(built_in, Contains(" us predicted; ") && !Contains("measured"));

    // Of an algorithm that this Weft does not have.
    Tuning unknown = *tuning;
    unknown.curves[0].algorithm = "rign";
    std::ofstream(file) << tuning_text(unknown);
    const std::string noted = run_program({"WEFT_TUNE_FILE=" + file}).error;
    CHECK_THAT(noted, Contains("WEFT_TUNE_FILE: " + file + ": there is no algorithm rign: its times are ignored"));
    std::ofstream(file) << tuning_text(*tuning);
    CHECK_THAT(run_program({"WEFT_TUNE_FILE=" + file}).error,
               !Contains("counts for nothing") && !Contains("count for"));

    // By ranks that sit otherwise it is not believed, who sit as these did take it.
    const char* left_out = ": inside a host the built-in costs are used";
    CHECK_THAT(run_program({"WEFT_TUNE_FILE=" + file, "WEFT_DEBUG=INFO"}, "3").error, !Contains(left_out));
    Tuning otherwise = *tuning;
    for (Tuning::Curve& curve : otherwise.curves)
        if (curve.apart) curve.apart = !*curve.apart;
    std::ofstream(file) << tuning_text(otherwise);
    const std::string believed_not = run_program({"WEFT_TUNE_FILE=" + file, "WEFT_DEBUG=INFO"}, "3").error;
    CHECK_THAT(believed_not, Contains("WEFT_TUNE_FILE: ranks here run on ") && Contains(left_out));
    CHECK_THAT(believed_not, !Contains("measured"));
}

TEST_CASE("a broken tuning ends a program with an error, a strange one causes only a warning", "[tune]") {
    const Folder folder;
    const std::string file = folder.path / "tune.json";
    Tuning tuning = tuning_of_here();
    std::ofstream(file) << tuning_text(tuning).substr(0, 100);
    const ProcessResult broken = run_program({"WEFT_TUNE_FILE=" + file});
    CHECK(broken.status != 0);
    CHECK_THAT(broken.error, Contains("WEFT_TUNE_FILE: " + file) && Contains("make it with `weft tune -o"));
    tuning.processor = "another processor";
    std::ofstream(file) << tuning_text(tuning);
    const ProcessResult strange = run_program({"WEFT_TUNE_FILE=" + file});
    CHECK(strange.status == 0);
    CHECK_THAT(strange.error, Contains("another processor") && Contains("the built-in costs are used"));
    CHECK(run_program({"WEFT_TUNE_FILE=none"}).error == "");
}

TEST_CASE("impossible measurements are refused before a minute is spent", "[tune]") {
    const auto refused = [](std::vector<std::string> arguments, const std::string& why) {
        const ProcessResult outcome = tune(std::move(arguments));
        INFO(why);
        CHECK(outcome.status != 0);
        CHECK_EXPECTED(PrintedError{outcome.error}, why);
        CHECK(outcome.output == "");
    };
    refused({"--ranks", "1"}, "[command.option] --ranks: 1");
    refused({"--ranks", "two"}, "[command.option] --ranks: two");
    refused({"--ranks", ""}, "[command.option] --ranks");
    refused({"--transports", "shm verbs"}, "[command.option] verbs is neither shm nor tcp");
    refused({"--collectives", "all_reduce send"}, "[command.option] --collectives: send");
    refused({"--least", "much"}, "[command.option] --least much");
    refused({"--least", "1M", "--most", "1K"}, "[command.option] --least 1M is above --most 1K");
    std::string many;
    for (int ranks = 2; ranks < 100; ++ranks) many += std::to_string(ranks) + ' ';
    refused({"--ranks", many}, "[command.option] at most 512 KiB");
    refused({"-o", "/no/such/folder/tune.json"}, "[file.unwritable] /no/such/folder/tune.json");
}

TEST_CASE("times survive their line", "[tune]") {
    tools::TunedTime read;
    REQUIRE(tools::TunedTime::read(time_of(true, 4096, "two_shot", 1.5).text(), read));
    CHECK(read.collective == Collective::all_reduce);
    CHECK(read.held_out);
    CHECK(read.bytes == 4096);
    CHECK(read.algorithm == "two_shot");
    CHECK(read.us == 1.5);
    CHECK_FALSE(tools::TunedTime::read("all_reduce held_out 4096", read));
    CHECK_FALSE(tools::TunedTime::read("a program's own words: 12 5 3", read));
}

TEST_CASE("the better time of several passes counts, and held-out sizes give the regret", "[tune]") {
    tools::Arrangement arrangement{4, 1, {}};
    // A machine on which a ring is the best there is at all sizes, which the built-in costs do not know.
    for (const double pass : {3.0, 1.0})
        for (const size_t bytes : {8, 16, 64})
            for (const auto& [name, us] : {std::pair{"ring", 1.0}, {"one_shot", 2.0}, {"two_shot", 4.0}})
                arrangement.times.push_back(time_of(bytes == 16, bytes, name, pass * us));
    Tuning here = tuning_of_here();
    const Tuning tuning = tools::tuning_of_times(here, {arrangement});
    REQUIRE(tuning.curves.size() == 3);
    for (const Tuning::Curve& curve : tuning.curves) {
        REQUIRE(curve.points.size() == 2);
        CHECK(curve.points[1].us == (curve.algorithm == "ring" ? 1 : curve.algorithm == "one_shot" ? 2 : 4));
    }
    const tools::Judgement judged = tools::judge(tuning, arrangement, Collective::none);
    CHECK(judged.sizes == 1);
    CHECK(judged.before.worst_chosen == "one_shot");
    CHECK(judged.before.worst_percent == Approx(100));
    CHECK(judged.after.worst_percent == Approx(0).margin(1e-9));
    CHECK(tools::judge(tuning, arrangement, Collective::broadcast).sizes == 0);
}

TEST_CASE("some sizes halfway are measured without making predictions", "[tune]") {
    tools::TuneWork work;
    size_t known = 0, held_out = 0;
    for (const tools::TunedSize& size : tools::tuned_sizes(work)) ++(size.held_out ? held_out : known);
    CHECK(known == 11);
    CHECK(held_out == 5);
    CHECK(tools::tuned_sizes(work).back().bytes == work.most_bytes);
}

TEST_CASE("constants are fitted to the measurements", "[tune]") {
    // Times as the model has them with another constant.
    LinkCosts links = network_link_costs(1, 0, true, true);
    links.net_latency_us *= 2;
    const Algorithm& row = *registry::find_algorithm("recursive_doubling", Collective::all_reduce);
    const Layout layout{2, 0, hosts_in_blocks(2, 2)};
    tools::Arrangement arrangement{2, 2, {}};
    for (size_t bytes = 8; bytes <= 1 << 20; bytes *= 8)
        arrangement.times.push_back(time_of(false, bytes, row.name, row.predicted_us(layout, links, bytes)));
    Tuning here = tuning_of_here();
    here.cores = 2;
    here.uses_cma = true;
    const Tuning tuning = tools::tuning_of_times(here, {arrangement});
    CHECK(tuning.constants.net_latency_us == Approx(links.net_latency_us).epsilon(0.1));
}
