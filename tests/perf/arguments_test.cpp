// arguments_test.cpp: nccl-tests' flags mean the same here, and impossible values are refused with an error.
#include "perf/arguments.hpp"

#include "tests/catch.hpp"

using namespace perf;
using Catch::Contains;

namespace {

std::variant<Arguments, Refusal> parse(std::vector<const char*> words) {
    words.insert(words.begin(), "all_reduce_perf");
    return parse_arguments("all_reduce_perf", int(words.size()), words.data());
}
Arguments accepted(const std::vector<const char*>& words) {
    auto parsed = parse(words);
    if (const Refusal* refusal = std::get_if<Refusal>(&parsed)) FAIL(refusal->text);
    return std::get<Arguments>(parsed);
}
std::string refused(const std::vector<const char*>& words) {
    auto parsed = parse(words);
    REQUIRE(std::holds_alternative<Refusal>(parsed));
    CHECK(std::get<Refusal>(parsed).status == 2);
    return std::get<Refusal>(parsed).text;
}

}  // namespace

TEST_CASE("defaults are nccl-tests'") {
    const Arguments arguments = accepted({});
    CHECK(arguments.sizes == std::vector<size_t>{32 << 20});
    CHECK(arguments.iterations == 20);
    CHECK(arguments.warmups == 1);
    CHECK(arguments.checks == 1);
    CHECK(arguments.average == Average::mean);
    CHECK(arguments.statistic == Statistic::mean);
    CHECK(arguments.elements[0]->type == weftFloat32);
    CHECK(arguments.reductions[0]->op == weftSum);
}

TEST_CASE("sizes walk by factor, by step, or are listed") {
    CHECK(accepted({"-b", "8", "-e", "1K", "-f", "4"}).sizes == std::vector<size_t>{8, 32, 128, 512});
    CHECK(accepted({"-b", "1M", "-e", "3M", "-i", "1M"}).sizes == std::vector<size_t>{1 << 20, 2 << 20, 3 << 20});
    CHECK(accepted({"-b1K", "-e1K"}).sizes == std::vector<size_t>{1024});
    CHECK(accepted({"--minbytes", "8", "--maxbytes", "12", "--stepbytes", "3"}).sizes == std::vector<size_t>{8, 11});
    CHECK(accepted({"--sizes", "8 4K,1G"}).sizes == std::vector<size_t>{8, 4096, 1 << 30});
    CHECK(accepted({"-b", "0.5K", "-e", "0.5k"}).sizes == std::vector<size_t>{512});
}

TEST_CASE("the root is a rank, or -1 for every one") {
    CHECK(accepted({}).root == 0);
    CHECK(accepted({"-r", "3"}).root == 3);
    CHECK(accepted({"-r", "-1"}).root == -1);
    refused({"-r", "-2"});
}

TEST_CASE("sizes that make no walk are refused") {
    CHECK_THAT(refused({"-b", "2M", "-e", "1M"}), Contains("above -e"));
    CHECK_THAT(refused({"-b", "1X"}), Contains("-b 1X is no size"));
    CHECK_THAT(refused({"-e", "-5"}), Contains("is no size"));
    CHECK_THAT(refused({"-b", "KK"}), Contains("is no size"));
    CHECK_THAT(refused({"-b", "99999999999G"}), Contains("is no size"));
    CHECK_THAT(refused({"-b", "0", "-e", "1K", "-f", "2"}), Contains("never leaves"));
    CHECK_THAT(refused({"-b", "1", "-e", "1K", "-i", "0"}), Contains("never gets"));
    CHECK_THAT(refused({"--sizes", ","}), Contains("holds no size"));
    // The list is not made first.
    CHECK_THAT(refused({"-b", "0", "-e", "64G", "-i", "8"}), Contains("makes 8589934593 sizes"));
    CHECK_THAT(refused({"-b", "0", "-e", "1000000", "-i", "1"}), Contains("makes 1000001 sizes"));
    CHECK(accepted({"-b", "1", "-e", "1000000", "-i", "1"}).sizes.size() == 1'000'000);
}

TEST_CASE("types and reductions go by name, all of them by all, and a misspelt one is answered with the list") {
    CHECK(accepted({"-d", "all", "-o", "all"}).elements.size() == weftNumTypes);
    CHECK(accepted({"-o", "all"}).reductions.size() == 9);
    CHECK(accepted({"-d", "bf16"}).elements[0]->type == weftBfloat16);
    CHECK(accepted({"-d", "uint8", "-o", "bxor"}).reductions[0]->op == weftBxor);
    CHECK_THAT(refused({"-d", "float", "-o", "band"}), Contains("-d float is none"));
    CHECK_THAT(refused({"-d", "flot"}), Contains("float, double, bfloat16"));
    CHECK_THAT(refused({"-o", "mean"}), Contains("sum, prod, max, min, avg, mulsum, band, bor, bxor, all"));
}

TEST_CASE("flags that need a GPU are refused by name") {
    CHECK_THAT(refused({"-G", "1"}), Contains("give -g 1"));
    CHECK_THAT(refused({"--ranks-per-gpu", "2"}), Contains("give -g 1"));
    CHECK_THAT(refused({"-g", "1", "-G", "1", "-I", "1"}), Contains("-G times whole graphs"));
    CHECK_THAT(refused({"-g", "1", "-G", "1", "-y", "1"}), Contains("cannot be captured"));
    CHECK_THAT(refused({"-C", "1"}), Contains("report_cputime"));
    CHECK_THAT(refused({"-R", "2"}), Contains("give -g 1"));
    CHECK_THAT(refused({"-R", "3", "-g", "1"}), Contains("0, 1 or 2"));
    CHECK_THAT(refused({"-R", "2", "-g", "1", "--plain-memory"}), Contains("-R 1"));
    CHECK(accepted({"-R", "2", "-g", "1"}).registered == Registered::windows);
    CHECK_THAT(refused({"--plain-memory", "-R", "1"}), Contains("give -g 1"));
    CHECK_THAT(refused({"--plain-memory", "-g", "1"}), Contains("-R 1"));
    CHECK_THAT(refused({"-D", "1"}), Contains("device"));
    accepted({"-g", "1", "-G", "0", "-y", "1"});
    CHECK(accepted({"-t", "2", "-g", "3", "--ranks-per-gpu", "4"}).ranks() == 24);
}

TEST_CASE("flags that contradict each other are refused") {
    CHECK_THAT(refused({"-z", "1", "-m", "2"}), Contains("-z 3"));
    CHECK_THAT(refused({"-I", "1", "-K", "20"}), Contains("leaves none"));
    CHECK_THAT(refused({"-K", "2"}), Contains("give -I 1"));
    CHECK_THAT(refused({"-I", "1", "--stat", "median-max"}), Contains("--stat mean"));
    CHECK_THAT(refused({"--json-lines", "weft", "-d", "all"}), Contains("one of each"));
    CHECK_THAT(refused({"--regret", "-g", "1"}), Contains("leave out -g"));
    for (const std::vector<const char*>& timing : std::vector<std::vector<const char*>>{
             {"-I", "1"}, {"-z", "1"}, {"-m", "2"}, {"-n", "9"}, {"-w", "9"}, {"-a", "0"}, {"--json-lines", "weft"}}) {
        std::vector<const char*> flags = {"--regret"};
        flags.insert(flags.end(), timing.begin(), timing.end());
        CHECK_THAT(refused(flags), Contains("a way of its own to time"));
    }
    CHECK(accepted({"--regret", "--seconds", "1"}).regret);
    CHECK_THAT(refused({"--nonsense"}), Contains("--nonsense"));
    for (const char* seconds : {"nan", "inf", "-1", "0"})
        CHECK_THAT(refused({"--stat", "median-max", "--seconds", seconds}), Contains("is no number of seconds"));
    // It would have been written beside them.
    for (const char* path : {"/tmp", "/dev/null", "/proc/self"})
        CHECK_THAT(refused({"-J", path}), Contains("is no file, but a folder or device"));
    accepted({"-J", "/nowhere/report.json"});
    CHECK_THAT(refused({"-t", "0"}), Contains("nthreads"));
}

TEST_CASE("flags without an effect on the timing are refused") {
    for (const std::vector<const char*>& method :
         std::vector<std::vector<const char*>>{{"--stat", "median-max"}, {"--json-lines", "weft"}}) {
        for (const std::vector<const char*>& idle : std::vector<std::vector<const char*>>{
                 {"-z", "1"}, {"-z", "3"}, {"-n", "20"}, {"-w", "1"}, {"-a", "3"}, {"--iters", "5"}}) {
            std::vector<const char*> flags = method;
            flags.insert(flags.end(), idle.begin(), idle.end());
            CHECK_THAT(refused(flags), Contains("leave out -n, -w, -z and -a"));
        }
        std::vector<const char*> graph = method;
        graph.insert(graph.end(), {"-g", "1", "-G", "5"});
        CHECK_THAT(refused(graph), Contains("-G times whole graphs"));
        std::vector<const char*> groups = method;
        groups.insert(groups.end(), {"-m", "4", "-z", "2"});
        CHECK(accepted(groups).calls_per_group == 4);
    }
    CHECK_THAT(refused({"--regret", "--stat", "median-max"}), Contains("a way of its own to time"));
}

TEST_CASE("lines for the peers' comparison are timed by its method") {
    const Arguments arguments = accepted({"--json-lines", "weft", "--seconds", "0.05"});
    CHECK(arguments.statistic == Statistic::median_max);
    CHECK(arguments.seconds == 0.05);
}

TEST_CASE("help is an answer, not an error") {
    auto parsed = parse({"-h"});
    REQUIRE(std::holds_alternative<Refusal>(parsed));
    CHECK(std::get<Refusal>(parsed).status == 0);
    CHECK_THAT(std::get<Refusal>(parsed).text, Contains("--minbytes") && Contains("--json-lines"));
}
