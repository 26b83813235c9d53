// nccl_net_jobs_test.cpp: jobs between simulated hosts over network plugins of NCCL, and plugins with a defect: each rank
// returns an error with an id, and none hangs.
#include <fstream>
#include <iterator>
#include <string>

#include "tests/catch.hpp"
#include "tests/conformance/job.hpp"
#include "tests/folder.hpp"

namespace weft::internal::test {
namespace {

Job net_job(int ranks, std::vector<std::string> variables) {
    variables.insert(variables.end(), {"WEFT_TRANSPORTS=^shm", "WEFT_DEBUG=INFO"});
    return job(ranks, std::move(variables));
}
std::string toy(int version) { return TOY_NET + std::to_string(version) + ".so"; }
std::string plugin(int version) { return "WEFT_NCCL_NET_PLUGIN=" + toy(version); }

}  // namespace

TEST_CASE("collectives and messages between hosts go over a network plugin of each version", "[nccl_net]") {
    const int version = GENERATE(8, 9, 10, 11, 12);
    const Job done = net_job(version == 11 ? 3 : 2, {plugin(version)});
    INFO(done.said << done.log);
    CHECK(done.count(": ok") == (version == 11 ? 3 : 2));
    CHECK_THAT(done.log,
               Catch::Contains("over nccl_net") && !Catch::Contains("over tcp, channel") &&
                   Catch::Contains("network plugin Toy of " + toy(version) + ", version " + std::to_string(version)));
}

TEST_CASE("a plugin may take few requests, or tell the size of the target", "[nccl_net]") {
    const std::string behaviour = GENERATE("limit", "posted");
    const Job done = net_job(2, {plugin(11), "TOY_NET=" + behaviour});
    INFO(done.said << done.log);
    CHECK(done.count(": ok") == 2);
    CHECK_THAT(done.log, Catch::Contains("over nccl_net"));
}

TEST_CASE("a network plugin that cannot be used is an error with the reason on every rank", "[nccl_net]") {
    const auto [file, behaviour, reason] = GENERATE(
        table<std::string, std::string, std::string>({{toy(7), "", "ncclNetPlugin of version 8 to 12"},
                                                      {WEFT_LIBRARY, "", "ncclNetPlugin of version 8 to 12"},
                                                      {"/nowhere/libmissing.so", "", "/nowhere/libmissing.so"},
                                                      {toy(8), "init", "ncclSystemError (2), toy: no driver is loaded"},
                                                      {toy(9), "none", "no device"},
                                                      {toy(10), "unpack", "toy0: its data must be unpacked"},
                                                      {toy(12), "no_host", "takes no host memory"}}));
    const Job done = net_job(2, {"WEFT_NCCL_NET_PLUGIN=" + file, "TOY_NET=" + behaviour});
    INFO(file << " " << behaviour << "\n" << done.said << done.log);
    CHECK(done.count(": transport.plugin: ") == 2);
    CHECK(done.count(reason) >= 2);
}

TEST_CASE("a plugin that only NCCL's variable names is left out with a warning if it cannot be used", "[nccl_net]") {
    const Job done = net_job(2, {"NCCL_NET_PLUGIN=" + toy(9), "TOY_NET=none"});
    INFO(done.said << done.log);
    CHECK(done.count(": ok") == 2);
    CHECK_THAT(done.log, Catch::Contains("WARN") && Catch::Contains("no device") && Catch::Contains("over tcp"));
}

TEST_CASE("a network plugin that fails in a connection is an error on every rank", "[nccl_net]") {
    const auto [version, behaviour, id, reason] = GENERATE(table<int, std::string, std::string, std::string>(
        {{11, "listen", "transport.broken", "no port is left"},
         {8, "connect", "transport.broken", "ncclRemoteError (6)"},
         {10, "never", "timeout.collective", ""},
         {9, "registration", "transport.broken", "the limit of locked memory"},
         {12, "small", "transport.broken", "messages have 1024 bytes at most"},
         {12, "late", "transport.broken", "the device vanished"},
         {11, "stuck", "timeout.collective", ""},
         {8, "short", "internal.damaged", "lost the rest"}}));
    const bool hangs = id == "timeout.collective";
    const Job done =
        net_job(2, {plugin(version), "TOY_NET=" + behaviour, hangs ? "WEFT_TIMEOUT_MS=500" : "WEFT_TIMEOUT_MS=60000"});
    INFO(behaviour << "\n" << done.said << done.log);
    CHECK(done.count("rank 0: " + id + ": ") == 1);
    CHECK(done.count("rank 1: " + id + ": ") == 1);
    CHECK_THAT(done.said, Catch::Contains(reason));
}

TEST_CASE("if only one rank has the network plugin, both use tcp, and a warning says why", "[nccl_net]") {
    const Job done = net_job(2, {plugin(11), "ONLY_RANK=0"});
    INFO(done.said << done.log);
    CHECK(done.count(": ok") == 2);
    CHECK_THAT(done.log, Catch::Contains("over tcp, because"));
}

TEST_CASE("plugins are found by their usual names, and not used if NCCL_NET asks for another", "[nccl_net]") {
    Folder folder;
    const auto link = [&](const std::string& name, int version) {
        REQUIRE(symlink(toy(version).c_str(), (folder.path / name).c_str()) == 0);
    };
    link("libnccl-net.so", 11);
    link("libnccl-net-toy.so", 8);
    const auto [variable, found] = GENERATE(table<std::string, std::string>({{"NOTHING=", "version 11"},
                                                                             {"NCCL_NET_PLUGIN=toy", "version 8"},
                                                                             {"NCCL_NET=tOY", "version 11"},
                                                                             {"NCCL_NET=Socket", ""},
                                                                             {"NCCL_NET_PLUGIN=none", ""},
                                                                             {"TOY_NET=init", ""}}));
    const LibraryFolder there(folder.path.string());
    const Job done = net_job(2, {variable});
    INFO(variable << "\n" << done.said << done.log);
    CHECK(done.count(": ok") == 2);
    CHECK_THAT(done.log, found.empty() ? Catch::Contains("over tcp, channel") && !Catch::Contains("WARN")
                                       : Catch::Contains("over nccl_net") && Catch::Contains(found));
}

TEST_CASE("if a network plugin lacks a library that it needs, the reason names that library", "[nccl_net]") {
    Folder folder;
    std::ifstream file(toy(11), std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const std::string needed = "libstdc++.so.6", absent = "libnowhere.so.";
    const size_t place = bytes.find(needed);
    REQUIRE(place != std::string::npos);
    bytes.replace(place, needed.size(), absent);
    for (const char* name : {"libnccl-net.so", "libnccl-net-toy.so"})
        std::ofstream(folder.path / name, std::ios::binary) << bytes;
    const LibraryFolder there(folder.path.string());
    const auto [variable, level] = GENERATE(table<std::string, std::string>(
        {{"NOTHING=", "INFO"}, {"NCCL_NET_PLUGIN=toy", "WARN"}, {"WEFT_NCCL_NET_PLUGIN=toy", "transport.plugin: "}}));
    const Job done = net_job(2, {variable});
    INFO(variable << "\n" << done.said << done.log);
    CHECK_THAT(done.said + done.log, Catch::Contains(level) && Catch::Contains(absent));
}

}  // namespace weft::internal::test
