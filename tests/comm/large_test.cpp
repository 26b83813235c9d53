// large_test.cpp: buffers of more than 2^31 and 2^32 elements, and messages of 64 MiB, under every algorithm. Each rank
// compares its whole result with sums of its inputs. Left out with WEFT_TEST_SMALL, under sanitizers, and on machines
// with too little memory.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/subprocess.hpp"

namespace weft::internal::test {
namespace {

constexpr size_t beyond_31_bits = (size_t(1) << 31) + 3, beyond_32_bits = (size_t(1) << 32) + 3;
constexpr size_t long_floats = (size_t(64) << 20) / sizeof(float) + 5;

size_t available_bytes() {
    std::ifstream file("/proc/meminfo");
    for (std::string word; file >> word;)
        if (size_t kib = 0; word == "MemAvailable:" && file >> kib) return kib << 10;
    return 0;
}

// Whether it can be tried here; else says why not.
bool worth_trying(size_t bytes) {
    std::string why;
    if (small() || sanitized)
        why = "tests shall be quick";
    else if (const size_t spare = bytes / 8 + (size_t(1) << 30); available_bytes() < bytes + spare)
        why = "it takes " + std::to_string(bytes >> 20) + " MiB of memory, of which " +
              std::to_string(available_bytes() >> 20) + " MiB are to be had";
    if (!why.empty()) std::cout << "left out: " << why << "\n";
    return why.empty();
}

struct Job {
    int ranks;
    int hosts;     // 0: this one
    bool threads;  // ranks are
    std::vector<std::string> arguments;
};

// The lines that begin so, without that.
std::set<std::string> said(const std::string& output, const std::string& head) {
    std::set<std::string> rest;
    std::stringstream lines(output);
    for (std::string line; std::getline(lines, line);)
        if (line.rfind(head, 0) == 0) rest.insert(line.substr(head.size()));
    return rest;
}

std::string run_job(const Job& job) {
    std::vector<std::string> command;
    if (!job.threads) command = {WEFT_COMMAND, "run", "-n", std::to_string(job.ranks)};
    command.push_back(WEFT_LARGE_WORKER);
    command.push_back((job.threads ? "threads=" : "hosts=") + std::to_string(job.threads ? job.ranks : job.hosts));
    command.insert(command.end(), job.arguments.begin(), job.arguments.end());
    std::string text;
    for (const std::string& word : command) text += word + " ";
    CAPTURE(text);
    const ProcessResult outcome = run(command, {"WEFT_WARN_MS=0", "WEFT_TIMEOUT_MS=120000"});
    CHECK(outcome.error == "");
    CHECK(outcome.status == 0);
    CHECK(!said(outcome.output, "called ").empty());
    return outcome.output;
}

std::string list_of(const std::set<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
    return text;
}

}  // namespace

TEST_CASE("every algorithm of all-reduce takes more than 2^31 elements", "[algorithms]") {
    if (!worth_trying(4 * beyond_31_bits)) return;
    const std::string count = "count=" + std::to_string(beyond_31_bits);
    std::set<std::string> served, refused;
    // Those for hosts of several ranks only where hosts have several.
    for (const auto& [ranks, hosts] : {std::pair{2, 0}, {4, 2}}) {
        const std::string output =
            run_job({ranks, hosts, false, {count, "calls=all_reduce", "but=" + list_of(served)}});
        served.merge(said(output, "served "));
        refused.merge(said(output, "refused "));
    }
    std::set<std::string> never;
    std::set_difference(refused.begin(), refused.end(), served.begin(), served.end(),
                        std::inserter(never, never.end()));
    CHECK(list_of(never) == "");
    CHECK(served.size() >= 16);
}

TEST_CASE("every algorithm of every collective is right for messages of 64 MiB", "[algorithms]") {
    if (!worth_trying(2 * 4 * 4 * long_floats * sizeof(float))) return;
    const std::string count = "count=" + std::to_string(long_floats), calls = "calls=all_reduce,rooted,parted";
    for (const auto& [ranks, hosts] : {std::pair{4, 0}, {2, 2}, {4, 2}})
        run_job({ranks, hosts, false, {count, "type=float", calls}});
    run_job({3, 0, true, {count, "type=float", calls}});
    run_job({4, 0, false, {count, "type=float", "calls=all_reduce", "memory=shared"}});
}

TEST_CASE("memory that others map is reduced where it lies, more than 2^32 elements of it", "[calls]") {
    if (!worth_trying(2 * beyond_32_bits)) return;
    run_job(
        {2, 0, false, {"count=" + std::to_string(beyond_32_bits), "calls=all_reduce", "memory=shared", "rows=chosen"}});
}

TEST_CASE("every other call takes more than 2^31 elements, from each rank", "[calls]") {
    if (!worth_trying(4 * beyond_31_bits)) return;
    const std::string count = "count=" + std::to_string(beyond_31_bits);
    run_job({2, 0, false, {count, "calls=rooted,parted", "rows=chosen"}});
    run_job({2, 0, false, {count, "calls=messages,windows"}});
    run_job({2, 0, true, {count, "calls=messages,windows,uneven"}});
}

TEST_CASE("more than 2^31 elements go over TCP", "[calls]") {
    if (!worth_trying(4 * beyond_31_bits)) return;
    run_job(
        {2, 2, false, {"count=" + std::to_string(beyond_31_bits), "calls=all_reduce,messages,windows", "rows=chosen"}});
}

}  // namespace weft::internal::test
