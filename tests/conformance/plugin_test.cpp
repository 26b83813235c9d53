// plugin_test.cpp: transports from plugins (weft/transport.h) between simulated hosts, and plugins with a defect: each rank
// returns an error with an id, and none hangs.
#include <string>

#include "tests/catch.hpp"
#include "tests/conformance/job.hpp"

namespace weft::internal::test {
namespace {

Job plugin_job(int ranks, std::vector<std::string> variables) {
    variables.emplace_back("WEFT_TRANSPORTS=^shm");
    return job(ranks, std::move(variables));
}
const std::string example = std::string("WEFT_TRANSPORT_PLUGIN=") + EXAMPLE_PLUGIN;
const std::string bad = std::string("WEFT_TRANSPORT_PLUGIN=") + BAD_PLUGIN;

}  // namespace

TEST_CASE("collectives and messages between hosts go over a plugin", "[plugin]") {
    const int ranks = GENERATE(2, 3);
    const Job done = plugin_job(ranks, {example, "WEFT_DEBUG=INFO"});
    INFO(done.said << done.log);
    CHECK(done.count(": ok") == ranks);
    CHECK_THAT(done.log, Catch::Contains("over unix_sockets"));
    CHECK_THAT(done.log, !Catch::Contains("over tcp, channel"));
}

TEST_CASE("a plugin of the first version works, also without optional functions", "[plugin]") {
    const std::string how = GENERATE("first", "short");
    const Job done = plugin_job(2, {bad, "BAD_PLUGIN=" + how, "WEFT_DEBUG=INFO"});
    INFO(done.said << done.log);
    CHECK(done.count(": ok") == 2);
    CHECK_THAT(done.log, Catch::Contains("over unix_sockets"));
}

TEST_CASE("if only one rank has the plugin, both use tcp, and a warning says why", "[plugin]") {
    const std::string only = GENERATE("0", "1");
    const Job done = plugin_job(2, {example, "ONLY_RANK=" + only});
    INFO(done.said << done.log);
    CHECK(done.count(": ok") == 2);
    CHECK_THAT(done.log, Catch::Contains("WARN") && Catch::Contains("over tcp, because") &&
                             Catch::Contains("WEFT_TRANSPORT_PLUGIN"));
}

TEST_CASE("a plugin that cannot be used is an error with the reason on every rank", "[plugin]") {
    const auto [how, reason] = GENERATE(table<std::string, std::string>({{"abi", "number 77 of the interface"},
                                                                         {"size", "64 bytes"},
                                                                         {"name", "tcp is the name"},
                                                                         {"missing", "no function receive"},
                                                                         {"promise", "no function sent"},
                                                                         {"init", "no device was found"}}));
    const Job done = plugin_job(2, {bad, "BAD_PLUGIN=" + how});
    INFO(how << "\n" << done.said << done.log);
    CHECK(done.count(": transport.plugin: ") == 2);
    CHECK(done.count(reason) == 2);
}

TEST_CASE("a file that is no plugin is an error that names it", "[plugin]") {
    const std::string path = GENERATE("/nowhere/libmissing.so", WEFT_LIBRARY);
    const Job done = plugin_job(2, {"WEFT_TRANSPORT_PLUGIN=" + path});
    INFO(done.said << done.log);
    CHECK(done.count(": transport.plugin: ") == 2);
    CHECK(done.count(path) >= 2);
}

TEST_CASE("a plugin that fails in a connection is an error on every rank", "[plugin]") {
    const auto [how, id, reason] =
        GENERATE(table<std::string, std::string, std::string>({{"listen", "transport.broken", "no port is left"},
                                                               {"connect", "transport.broken", "gave no reason"},
                                                               {"late", "transport.broken", "the device vanished"},
                                                               {"result", "transport.broken", "999"},
                                                               {"lie", "internal.damaged", "slots hold"},
                                                               {"small", "internal.damaged", "are expected"},
                                                               {"never", "timeout.collective", ""}}));
    const Job done =
        plugin_job(2, {bad, "BAD_PLUGIN=" + how, how == "never" ? "WEFT_TIMEOUT_MS=500" : "WEFT_TIMEOUT_MS=60000"});
    INFO(how << "\n" << done.said << done.log);
    CHECK(done.count("rank 0: ") == 1);
    CHECK(done.count("rank 1: ") == 1);
    CHECK(done.count(": " + id + ": ") == 2);
    CHECK_THAT(done.said, Catch::Contains(reason));
}

TEST_CASE("a failed get ends its connection before the call returns, and the peer's memory before that", "[plugin]") {
    const bool out_of_memory = GENERATE(false, true);
    std::vector<std::string> variables = {bad, "BAD_PLUGIN=get", "GETS=1", "WEFT_TIMEOUT_MS=500"};
    if (out_of_memory) variables.emplace_back("OUT_OF_MEMORY=1");
    const Job done = plugin_job(2, variables);
    INFO(done.said << done.log);
    CHECK(done.count("getter closed after detach") == 1);
    CHECK(done.count("getter closed before detach") == 0);
    CHECK(done.said.find("getter closed") < done.said.find("rank 0: last get or wait:"));
    CHECK(done.count(out_of_memory ? "rank 0: last get or wait: memory.exhausted"
                                   : "rank 0: last get or wait: timeout.") == 1);
    CHECK(done.count(": ok") == 2);
}

}  // namespace weft::internal::test
