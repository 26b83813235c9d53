// info_test.cpp: `weft info` shows everything that the tables hold, in both forms, and errors in the environment.
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "src/base/error.hpp"
#include "src/base/options.hpp"
#include "src/kernels/cpu_kernels.hpp"
#include "src/registry.hpp"
#include "tests/catch.hpp"
#include "tests/subprocess.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using Json = nlohmann::json;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Json info(std::vector<std::string> variables, int status = 0) {
    ProcessResult outcome = run({WEFT_COMMAND, "info", "--json"}, std::move(variables));
    CHECK(outcome.status == status);
    return Json::parse(outcome.output);
}

Json option(const Json& all, const std::string& name) {
    for (const Json& row : all["options"]) {
        if (row["name"] == name) return row;
    }
    return {};
}

}  // namespace

TEST_CASE("every option is shown with variable, value, origin and help", "[info]") {
    ProcessResult outcome = run({WEFT_COMMAND, "info"});
    CHECK(outcome.status == 0);
    CHECK(outcome.error == "");
    // Without what tests set for every process (subprocess.hpp).
    const Json all = Json::parse(run({"env", "-u", "WEFT_HEARTBEAT_MS", WEFT_COMMAND, "info", "--json"}).output);
    CHECK(all["options"].size() == option_rows().size());
    for (const OptionRow& row : option_rows()) {
        INFO(row.name);
        CHECK(contains(outcome.output, row.variable));
        CHECK(contains(outcome.output, row.help));
        CHECK(option(all, row.name)["value"] == row.standard);
        CHECK(option(all, row.name)["origin"] == "default");
        CHECK(option(all, row.name)["help"] == row.help);
    }
}

TEST_CASE("an option's origin is the variable that set it", "[info]") {
    Json all = info({"WEFT_WARN_MS=1234", "NCCL_DEBUG=INFO"});
    CHECK(option(all, "warn_ms")["value"] == "1234");
    CHECK(option(all, "warn_ms")["origin"] == "environment");
    CHECK(option(all, "debug")["value"] == "INFO");
    CHECK(option(all, "debug")["origin"] == "alias");
    CHECK(contains(run({WEFT_COMMAND, "info"}, {"WEFT_WARN_MS=1234"}).output, "1234         environment"));
}

TEST_CASE("a value that is not UTF-8 is shown with a replacement", "[info]") {
    const Json all = info({"WEFT_ALGO_FILES=/nowhere/\xff"});
    CHECK(option(all, "algo_files")["value"] == "/nowhere/\uFFFD");
}

TEST_CASE("a secret is not shown", "[info]") {
    std::string secret(256, 'a');
    ProcessResult text = run({WEFT_COMMAND, "info"}, {"WEFT_UNIQUE_ID=" + secret});
    ProcessResult json = run({WEFT_COMMAND, "info", "--json"}, {"WEFT_UNIQUE_ID=" + secret});
    for (const ProcessResult& outcome : {text, json}) {
        CHECK(!contains(outcome.output + outcome.error, "aaaa"));
        CHECK(contains(outcome.output, "(not shown)"));
    }
}

TEST_CASE("every algorithm and transport of the registry is shown", "[info]") {
    std::string text = run({WEFT_COMMAND, "info"}).output;
    Json all = info({});
    CHECK(all["algorithms"].size() == registry::algorithms().size());
    for (const Algorithm& row : registry::algorithms()) {
        CHECK(contains(text, row.name));
        CHECK(contains(text, row.cost));
    }
    CHECK(all["transports"].size() == registry::transports().size());
    for (const Transport* row : registry::transports()) {
        CHECK(contains(text, row->name));
        for (const Json& told : all["transports"]) {
            if (told["name"] == row->name) CHECK(told["why_not"] == row->available());
        }
    }
}

TEST_CASE("version, build and machine are shown", "[info]") {
    Json all = info({});
    CHECK(all["build"]["version"] ==
          std::to_string(WEFT_MAJOR) + "." + std::to_string(WEFT_MINOR) + "." + std::to_string(WEFT_PATCH));
    CHECK(all["build"]["isa_sets"].size() == all_cpu_kernels().size());
    CHECK(all["build"]["isa_active"] == cpu_kernels().isa);
    CHECK(info({"WEFT_ISA=plain"})["build"]["isa_active"] == "plain");
    CHECK(all["machine"]["cores_allowed"] >= 1);
    CHECK(all["machine"]["page_bytes"] == sysconf(_SC_PAGESIZE));
}

TEST_CASE("errors in the environment are shown, and in the exit status", "[info]") {
    Json all = info({"WEFT_DIRECT=7", "WEFT_ISA=mmx", "WEFT_ALGO=rign", "WEFT_TIMOUT_MS=1"}, 1);
    CHECK(all["errors"].size() == 3);
    CHECK(all["warnings"] == Json::array({"WEFT_TIMOUT_MS is not an option; did you mean WEFT_TIMEOUT_MS?"}));
    ProcessResult outcome = run({WEFT_COMMAND, "info"}, {"WEFT_DIRECT=7"});
    CHECK(outcome.status == 1);
    CHECK(contains(outcome.error, "weft info: WEFT_DIRECT is 7; it must be from 0 to 1"));
    const struct {
        const char *variable, *sentence;
    } misspelt[] = {
        {"WEFT_TRANSPORTS=shmm", "WEFT_TRANSPORTS names `shmm`"},
        {"WEFT_PORT_RANGE=abc", "WEFT_PORT_RANGE is abc; first-last is expected"},
        {"WEFT_SOCKET_IFNAME=none_of_these", "WEFT_SOCKET_IFNAME"},
        {"WEFT_SOCKET_FAMILY=AF_INET5", "WEFT_SOCKET_FAMILY"},
        {"WEFT_ISA=mmx", "WEFT_ISA is `mmx`; this machine has "},
        {"WEFT_GPU_PATH=hots", "WEFT_GPU_PATH is `hots`; it is descriptors, host, copies, or empty"},
    };
    for (const auto& [variable, sentence] : misspelt) {
        all = info({variable}, 1);
        INFO(variable);
        REQUIRE(all["errors"].size() == 1);
        CHECK_THAT(all["errors"][0].get<std::string>(), Catch::Contains(sentence));
    }
    // Those for which programs only print a warning.
    CHECK_THAT(info({"WEFT_DEBUG=INF"})["warnings"][0].get<std::string>(),
               Catch::Contains("WEFT_DEBUG is INF, which is not a level"));
    CHECK_THAT(info({"WEFT_DEBUG_SUBSYS=INTI"})["warnings"][0].get<std::string>(),
               Catch::Contains("WEFT_DEBUG_SUBSYS names INTI, which is not a category"));
    outcome = run({WEFT_COMMAND, "info"}, {"WEFT_TIMOUT_MS=1"});
    CHECK(outcome.status == 0);
    CHECK(contains(outcome.error, "weft info: warning: WEFT_TIMOUT_MS is not an option"));
}

TEST_CASE("an error id is explained, and a wrong one is answered with ids near it", "[explain]") {
    for (const std::string id : {"mismatch.count", "[mismatch.count]"}) {
        const ProcessResult outcome = run({WEFT_COMMAND, "explain", id});
        CHECK(outcome.status == 0);
        for (const std::string part : {"mismatch.count", "Usual causes", "What to do"})
            CHECK(contains(outcome.output, part));
    }
    const ProcessResult wrong = run({WEFT_COMMAND, "explain", "mismatch.cuont"});
    CHECK(wrong.status == 2);
    CHECK(contains(wrong.error, "mismatch.count"));
    const ProcessResult all = run({WEFT_COMMAND, "explain"});
    CHECK(all.status == 0);
    for (const ErrorRow& row : error_rows()) CHECK(contains(all.output, row.id));
}

TEST_CASE("the choice is explained for ranks and hosts that do not exist", "[info]") {
    const auto explained = [](std::vector<std::string> arguments, std::vector<std::string> variables = {}) {
        arguments.insert(arguments.begin(), {WEFT_COMMAND, "info", "explain"});
        return run(arguments, std::move(variables));
    };
    const ProcessResult here = explained({"1M", "-n", "4"});
    CHECK(here.status == 0);
    CHECK(contains(here.output, "(1048576 bytes) on 4 ranks"));
    CHECK(contains(here.output, "chosen: two_shot over shm"));
    for (const Collective collective : all_collectives) {
        const ProcessResult each = explained({"1M", "-n", "4", "--collective", name_of(collective)});
        CHECK(contains(each.output,
                       std::string(name_of(collective)) + (collective == Collective::barrier ? " (" : " of ")));
        for (const Algorithm& row : registry::algorithms())
            if (row.collective == collective) CHECK(contains(each.output, "candidate " + std::string(row.name) + ":"));
    }
    CHECK(explained({"8", "--collective", "all_gathr"}).status == 2);
    // As people write it.
    const std::string all_gather = explained({"1M", "-n", "4", "--collective", "all_gather"}).output;
    for (const char* name : {"all_gather", "allgather", "AllGather", "all-gather"})
        CHECK(explained({name, "1M", "--ranks", "4"}).output == all_gather);
    CHECK(explained({"allreduce", "1M", "--ranks", "4"}).output == here.output);
    CHECK(explained({"allreduce", "1M", "--collective", "all_reduce"}).status == 2);
    CHECK(contains(explained({"1M", "allreduce"}).error, "allreduce is not a size"));
    CHECK(
        contains(explained({"all", "1M"}).error, "collective `all` does not exist; the collectives are all_reduce, "));
    CHECK(contains(explained({"8", "-n", "8", "--hosts", "4"}).output, "on 8 ranks of 4 hosts"));
    CHECK(contains(explained({"8", "-n", "3", "--hosts", "3"}).output, "over tcp"));
    CHECK(contains(explained({"1M", "-n", "4"}, {"WEFT_ALGO=ring"}).output, "chosen: ring"));
    CHECK(explained({"much"}).status == 2);
    CHECK(explained({"8", "-n", "2", "--hosts", "3"}).status == 2);
    // A barrier has no size, all others do.
    CHECK(explained({"barrier", "-n", "4"}).output == explained({"barrier", "0", "-n", "4"}).output);
    CHECK(explained({"--collective", "barrier", "-n", "4"}).output == explained({"barrier", "0", "-n", "4"}).output);
    CHECK(contains(explained({"allreduce"}).error,
                   "say a size, in bytes, with K, M or G: weft info explain all_reduce 1M"));
    for (const std::vector<std::string>& unsaid :
         std::vector<std::vector<std::string>>{{}, {"allreduce"}, {"--collective", "gather"}})
        CHECK(explained(unsaid).status == 2);
    CHECK(contains(explained({"8", "-n", "1"}).output, "on 1 rank, "));
    for (const std::vector<std::string>& impossible :
         std::vector<std::vector<std::string>>{{"8", "--ranks", "100000000"},
                                               {"8", "--ranks", "0"},
                                               {"8", "-n", "4", "--hosts", "2", "--link-mbps", "-1"},
                                               {"8", "-n", "4", "--hosts", "0"},
                                               {"8", "-n", "4", "--cores", "-1"}}) {
        const ProcessResult refused = explained(impossible);
        CHECK(refused.status == 2);
        CHECK(contains(refused.error, "not in range"));
    }
}

TEST_CASE("a variable that a job would refuse is not used to explain", "[info]") {
    const auto explained = [](std::vector<std::string> variables) {
        return run({WEFT_COMMAND, "info", "explain", "1M", "-n", "4"}, std::move(variables));
    };
    const ProcessResult misspelt = explained({"WEFT_ALGO=rign"});
    CHECK(misspelt.status == 1);
    CHECK(misspelt.output == "");
    // The sentence of plain `weft info`.
    CHECK(misspelt.error == "weft info explain: " + info({"WEFT_ALGO=rign"}, 1)["errors"][0].get<std::string>() + "\n");
    CHECK(explained({"WEFT_DIRECT=7"}).status == 1);
    CHECK(explained({"WEFT_ALGO_FILES=/nowhere.txt", "WEFT_ALGO=mine"}).status == 1);
    CHECK(explained({"WEFT_ALGO_FILES_ORDER=none"}).status == 1);
    CHECK(explained({"WEFT_ALGO_FILES_ORDER=any", "WEFT_DETERMINISTIC=1"}).status == 1);
    CHECK(explained({"WEFT_TUNE_FILE=/nowhere.json"}).status == 1);
    // A communicator does without it, too.
    const ProcessResult unread = explained({"WEFT_ALGO_FILES=/nowhere.txt"});
    CHECK(unread.status == 0);
    CHECK(contains(unread.error, "weft info explain: warning: WEFT_ALGO_FILES: /nowhere.txt"));
    const ProcessResult warned = explained({"WEFT_TIMOUT_MS=1"});
    CHECK(warned.status == 0);
    CHECK(contains(warned.error, "weft info explain: warning: WEFT_TIMOUT_MS is not an option"));
    // No algorithm is misspelt, but none is left: that one needs several hosts.
    const ProcessResult unserved = explained({"WEFT_ALGO=all_reduce:two_level_ring"});
    CHECK(unserved.status == 1);
    CHECK(contains(unserved.output, "no algorithm can serve all_reduce"));
}

TEST_CASE("hosts that are one machine are explained as a program there chooses", "[info]") {
    const auto explained = [](std::vector<std::string> arguments, std::vector<std::string> variables = {}) {
        arguments.insert(arguments.begin(), {WEFT_COMMAND, "info", "explain", "1M", "-n", "8"});
        return run(arguments, std::move(variables));
    };
    const ProcessResult hosts = explained({"--hosts", "4", "--cores", "2"}),
                        machine = explained({"--hosts", "4", "--cores", "2", "--one-machine"});
    CHECK(contains(hosts.output, "on 8 ranks of 4 hosts, 1 a core"));
    CHECK(contains(machine.output, "on 8 ranks of 4 hosts, 4 a core"));
    // A rank that may not share memory counts as a host.
    const std::vector<std::string> no_shm = {"WEFT_TRANSPORTS=tcp"};
    CHECK(explained({"--cores", "2"}, no_shm).output ==
          explained({"--hosts", "8", "--cores", "2", "--one-machine"}).output);
    CHECK(contains(explained({"--hosts", "4", "--cores", "2"}, no_shm).output, "on 8 ranks of 8 hosts, 1 a core"));
    CHECK(explained({"--one-machine", "--hosts", "4", "--link-mbps", "1000"}).status == 2);
}

TEST_CASE("rings, rails and NVLink domains of machines that a file describes are explained", "[info]") {
    const auto explained = [](const std::string& machine, std::vector<std::string> arguments,
                              std::vector<std::string> variables = {}) {
        arguments.insert(arguments.begin(),
                         {WEFT_COMMAND, "info", "explain", "16M", "--topology", WEFT_MACHINES + machine});
        return run(arguments, std::move(variables));
    };
    const ProcessResult two = explained("dgx_h100.xml", {"--hosts", "2"});
    CHECK(two.status == 0);
    CHECK(two.error == "");
    CHECK(contains(two.output, "GPUs: 1 kind of machines; 8 rings along the links, the first 0 "));
    CHECK(contains(two.output, "; links of 384 GB/s in all\n"));
    CHECK(contains(two.output,
                   "GPUs: rails by the NIC nearest to each rank, 8 of them: 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7; "
                   "of 2 ways from host to host of the first ring 2 keep their rail\n"));
    CHECK(!contains(two.output, "NVLink domain"));
    for (int ring = 0; ring < 8; ++ring) CHECK(contains(two.output, "\nring " + std::to_string(ring) + ": 0 "));
    CHECK(!contains(two.output, "\nring 8"));
    CHECK(contains(two.output, "on 16 ranks of 2 hosts, 1 a core\n"));
    CHECK(contains(two.output, "chosen: "));
    // Two trays of a rack are two hosts of one domain; two such racks two domains.
    const ProcessResult rack = explained("gb200_nvl72_slice.xml", {});
    CHECK(contains(rack.output, "GPUs: 1 NVLink domain of several hosts, by host 0 0; 2 of those ways lie in one\n"));
    CHECK(contains(rack.output, "on 8 ranks of 2 hosts"));
    CHECK(contains(explained("gb200_nvl72_slice.xml", {"--hosts", "2", "-n", "16"}).output,
                   "GPUs: 2 NVLink domains of several hosts, by host 0 0 1 1; 2 of those ways lie in one\n"));
    // One host has no rails; the speed of the network counts if there are several hosts.
    CHECK(!contains(explained("dgx_h100.xml", {}).output, "rails"));
    CHECK(explained("dgx_h100.xml", {"--hosts", "2", "--link-mbps", "400000"}).output == two.output);
    CHECK(explained("dgx_h100.xml", {"--hosts", "2", "--link-mbps", "1000"}).output != two.output);
    CHECK(contains(explained("cpu_two_sockets.xml", {"-n", "4"}).output, "processors: 1 kind of machines; "));
    // Impossible arguments.
    CHECK(contains(explained("dgx_h100.xml", {"-n", "9"}).error, "9 ranks do not fit"));
    CHECK(explained("dgx_h100.xml", {"-n", "9"}).status == 2);
    CHECK(explained("dgx_h100.xml", {"-n", "0"}).status == 2);
    CHECK(explained("dgx_h100.xml", {"--hosts", "0"}).status == 2);
    CHECK(contains(explained("dgx_h100.xml", {"--one-machine"}).error, "--one-machine"));
    CHECK(contains(explained("dgx_h100.xml", {}, {"WEFT_TRANSPORTS=tcp"}).error, "WEFT_TRANSPORTS"));
    CHECK(contains(explained("nowhere.xml", {}).error, "nowhere.xml"));
}

TEST_CASE("the machine's topology is shown in some lines", "[info]") {
    const Json topology = info({})["machine"]["topology"];
    REQUIRE(topology["summary"].size() == 3);
    CHECK(contains(topology["summary"][0].get<std::string>(), "NUMA domain"));
    CHECK(contains(run({WEFT_COMMAND, "info"}).output, "topology      " + topology["summary"][0].get<std::string>()));
    const Json broken = info({"WEFT_TOPO_FILE=/nowhere.xml"})["machine"]["topology"];
    CHECK(contains(broken["why_not"].get<std::string>(), "/nowhere.xml"));
    CHECK(contains(run({WEFT_COMMAND, "info"}, {"WEFT_TOPO_FILE=/nowhere.xml"}).output, "/nowhere.xml"));
}

TEST_CASE("costs are explained for RDMA between the machines", "[info]") {
    const auto explain = [](std::vector<std::string> words) {
        words.insert(words.begin(), {WEFT_COMMAND, "info", "explain", "8", "-n", "4", "--cores", "4"});
        return run(std::move(words));
    };
    const ProcessResult rdma = explain({"--hosts", "2", "--network", "ndr"}), tcp = explain({"--hosts", "2"});
    CHECK(rdma.status == 0);
    CHECK(rdma.output != tcp.output);
    const ProcessResult rails = explain({"--hosts", "2", "--network", "ndr", "--rails", "2"});
    CHECK(rails.status == 0);
    CHECK(contains(explain({"--hosts", "2", "--rails", "2"}).error, "name their --network"));
    CHECK(contains(explain({"--network", "ndr"}).error, "--network is between machines"));
    CHECK(contains(explain({"--hosts", "2", "--network", "ib"}).error, "network `ib` does not exist; there are qdr"));
}

TEST_CASE("RDMA ports are shown with the choice and the reasons", "[info]") {
    const std::string library = std::string("WEFT_VERBS_LIBRARY=") + FAKE_IBVERBS_LIBRARY;
    const std::string world = "FAKE_IBVERBS=device mlx5_0; device mlx5_1 2; port mlx5_1:2 down";
    Json rdma = info({library, world, "WEFT_IB_DEVICES=^mlx5_0"})["rdma"];
    CHECK(rdma["why_not"] == "");
    REQUIRE(rdma["ports"].size() == 3);
    CHECK(rdma["ports"][0]["why_not"] == "WEFT_IB_DEVICES leaves it out");
    CHECK(rdma["ports"][1]["why_not"] == "");
    CHECK(rdma["ports"][1]["mbps"] == 400'000);
    CHECK(rdma["ports"][2]["why_not"] == "the port is DOWN");
    REQUIRE(rdma["choices"].size() >= 1);
    CHECK(rdma["choices"][0]["port"] == "mlx5_1:1");

    const ProcessResult text = run({WEFT_COMMAND, "info"}, {library, world, "NCCL_IB_HCA=mlx5_1,mlx5_9"});
    CHECK(text.status == 0);
    CHECK(contains(text.output, "mlx5_0:1      RoCE, 400 Gb/s, MTU 4096, 4 GIDs; not used: NCCL_IB_HCA leaves it out"));
    CHECK(contains(text.output, "mlx5_1:1, the only one"));

    // A misspelt device is an error of Weft's variable.
    const Json wrong = info({library, world, "WEFT_IB_DEVICES=mlx5_1,mlx6_0"}, 1);
    REQUIRE(wrong["errors"].size() == 1);
    CHECK(contains(wrong["errors"][0], "did you mean mlx5_0? There are mlx5_0, mlx5_1"));
    CHECK(info({"WEFT_IB_PKEY=first"}, 1)["errors"].size() == 1);
    // A machine with GPUs and cards, as a file describes it.
    const std::string machine = std::string("WEFT_TOPO_FILE=") + WEFT_MACHINES + "dgx_h100.xml";
    for (const auto& [level, way] : {std::pair("PXB", "GPU memory is sent and received directly"),
                                     std::pair("LOC", "PIX is farther than WEFT_GDR_LEVEL allows")}) {
        Json with_gpus = info({library, "FAKE_IBVERBS=device mlx5_0", machine, std::string("WEFT_GDR_LEVEL=") + level});
        REQUIRE(with_gpus["rdma"]["choices"].size() == 8);
        CHECK(with_gpus["rdma"]["choices"][0]["port"] == "mlx5_0:1");
        CHECK(contains(with_gpus["rdma"]["choices"][0]["memory"], way));
    }
    CHECK(info({library, world, "WEFT_IB_DISABLE=1"})["rdma"]["why_not"] == "WEFT_IB_DISABLE is 1");
    CHECK(contains(info({"WEFT_VERBS_LIBRARY=none"})["rdma"]["why_not"], "WEFT_VERBS_LIBRARY"));
}
