// `weft schedule simulate`: its output, its errors, and its traces.
#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <vector>

#include "src/registry.hpp"
#include "src/selector/built_in_costs.hpp"
#include "src/selector/selector.hpp"
#include "src/selector/tuning_file.hpp"
#include "src/selector/tuning_text.hpp"
#include "tests/error.hpp"
#include "tests/schedule/command.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using Json = nlohmann::json;

namespace {

const std::string machines = std::string(WEFT_SCHEDULES) + "/../topology/machines/";

ProcessResult simulate(std::vector<std::string> words) {
    words.insert(words.begin(), {"schedule", "simulate"});
    return run(words);
}

Json simulated(std::vector<std::string> words) {
    words.push_back("--json");
    const ProcessResult outcome = simulate(words);
    INFO(outcome.err);
    REQUIRE(outcome.exit_status == 0);
    return Json::parse(outcome.out);
}

}  // namespace

TEST_CASE("weft schedule simulate predicts a call on hosts that are not there", "[schedule]") {
    const ProcessResult table =
        run({"schedule", "simulate", "ring", "--hosts", "4", "--host", "dgx-h100", "-b", "64M"});
    CHECK(table.exit_status == 0);
    CHECK(table.out.find("ring all_reduce of 67108864 bytes, 32 ranks on 4 dgx-h100, ") == 0);
    CHECK(table.out.find("\nnetwork out of rank 7 ") != std::string::npos);
    CHECK(table.out.find("\n8 ranks simulated, which stand for all") != std::string::npos);
    const ProcessResult json = run({"schedule", "simulate", "two_shot", "-n", "4", "--bytes", "1M", "--json"});
    CHECK(json.exit_status == 0);
    CHECK(json.out.find("\"ranks\": 4,") != std::string::npos);
    CHECK(json.out.find("\"critical_rank\": 0,") != std::string::npos);
    const std::pair<std::vector<std::string>, const char*> mistakes[] = {
        {{"ring"}, "[command.option] --ranks"},
        {{"wring", "--ranks", "4"}, "[command.option] `wring` does not exist for all_reduce"},
        {{"ring", "--ranks", "4", "--host", "dgx"}, "[command.option] `dgx` does not exist; the kinds are dgx-a100"},
        {{"ring", "--ranks", "12"}, "[command.option] 12 ranks"},
        {{"ring", "--hosts", "2", "--network", "nd"}, "[command.option] `nd` does not exist; the networks are qdr"},
        {{"ring", "--hosts", "2", "--rails", "2"}, "[command.option] --rails counts ports of RDMA devices"},
        {{"ring", "--ranks", "9", "--hosts", "2"}, "[command.option] 9 ranks"},
        {{"ring", "--ranks", "18", "--hosts", "2"}, "[command.option] a dgx-h100 has 8 devices, not 9"},
        {{"ring", "--ranks", "2", "--hosts", "3"}, "[command.option] 2 ranks"},
        {{"ring", "--hosts", "500000"}, "[schedule.limit] 500000 hosts of 8 ranks"},
        {{"one_shot", "--hosts", "2"}, "[command.option] one_shot needs all ranks on one host"},
        {{"ring", "--ranks", "2", "--protocol", "udp"}, "[command.option] `udp`"},
        {{"ring", "--ranks", "2", "--host", "cpu-10g", "--protocol", "simple"}, "[command.option] --protocol"},
        {{"linear", "--ranks", "2", "--collective", "gather", "--root", "2"}, "[command.option] --root 2"},
    };
    for (const auto& [words, sentence] : mistakes) {
        std::vector<std::string> arguments = {"schedule", "simulate"};
        arguments.insert(arguments.end(), words.begin(), words.end());
        const ProcessResult outcome = run(arguments);
        INFO(outcome.err);
        CHECK(outcome.exit_status == 2);
        CHECK_EXPECTED(PrintedError{outcome.err}, sentence);
    }
}

TEST_CASE("weft schedule simulate prices a link by its rails, up to the limit of a bus", "[schedule]") {
    const auto us = [](std::vector<std::string> words) {
        words.insert(words.begin(), {"ring", "-n", "2", "--hosts", "2", "--host", "dgx-h100", "-b", "1G", "--network",
                                     "edr", "--channels", "16"});
        return simulated(std::move(words))["us"].get<double>();
    };
    const double one = us({});
    CHECK(us({"--rails", "2"}) / one == Approx(0.5).margin(0.05));
    CHECK(us({"--rails", "2", "--set", "net_bytes_per_us=12075"}) == Approx(one).epsilon(0.01));
}

TEST_CASE("weft schedule simulate puts RDMA of a generation between hosts", "[schedule]") {
    for (const char* host : {"dgx-h100", "cpu-100g"}) {
        const auto us = [&](const char* network, const char* bytes) {
            return simulated(
                       {"ring", "-n", "2", "--hosts", "2", "--host", host, "-b", bytes, "--network", network})["us"]
                .get<double>();
        };
        INFO(host);
        CHECK(us("edr", "1G") < us("roce-25", "1G"));
        CHECK(us("edr", "1K") < us("qdr", "1K"));
        CHECK(us("edr", "1K") < us("roce-100", "1K"));
    }
    CHECK(simulate({"all", "--hosts", "2", "--network", "ndr", "-b", "64M"}).out.find("Weft would choose rail_") !=
          std::string::npos);
}

TEST_CASE("weft schedule simulate takes machines from a topology file", "[schedule]") {
    const std::string file = machines + "pcie_4_gpus.xml";
    const ProcessResult table = simulate({"ring", "--topology", file, "--hosts", "2", "-b", "1M", "--channels", "1"});
    CHECK(table.exit_status == 0);
    CHECK(table.out.find("ring all_reduce of 1048576 bytes, 8 ranks on 2 pcie_4_gpus.xml, ") == 0);
    CHECK(table.out.find("\npci from cpu 1 to gpu 3 (0000:af:00.0) of machine 0 ") != std::string::npos);
    const Json here = simulated({"ring", "--topology", file, "--ranks", "2", "-b", "16M"});
    const Json narrow = simulated({"ring", "--topology", file, "-b", "16M"});
    CHECK(here["ranks"] == 2);
    CHECK(narrow["busbw"].get<double>() < here["busbw"].get<double>());
    CHECK(simulated({"ring", "--topology", machines + "cpu_two_sockets.xml", "-n", "4"})["ranks"] == 4);
    // The name of a file may be anything.
    const TemporaryFile base;
    const std::string odd = base.name + "\xff";
    REQUIRE(symlink((machines + "cpu_two_sockets.xml").c_str(), odd.c_str()) == 0);
    const std::string replaced = odd.substr(5, odd.size() - 6) + "\uFFFD";
    CHECK(simulated({"ring", "--topology", odd, "-n", "4"})["host"] == replaced);
    CHECK(simulated({"all", "--topology", odd, "-n", "4"})["host"] == replaced);
    unlink(odd.c_str());
    const std::pair<std::vector<std::string>, const char*> mistakes[] = {
        {{"--ranks", "5"}, "[topology.placement] 5 ranks"},
        {{"--ranks", "3", "--hosts", "2"}, "[topology.placement] 3 ranks"},
        {{"--hosts", "5000"}, "[topology.placement] 5000 hosts"},
        {{"--host", "cpu-10g"}, "[command.option] has GPUs"},
    };
    for (const auto& [words, sentence] : mistakes) {
        std::vector<std::string> all = {"ring", "--topology", file};
        all.insert(all.end(), words.begin(), words.end());
        const ProcessResult outcome = simulate(all);
        INFO(outcome.err);
        CHECK(outcome.exit_status == 2);
        CHECK_EXPECTED(PrintedError{outcome.err}, sentence);
    }
    // A machine without ports reaches no other machine.
    const std::string cloud = machines + "cloud_vm_partial.xml";
    const ProcessResult alone = simulate({"ring", "--topology", cloud, "--hosts", "2"});
    CHECK(alone.exit_status == 2);
    CHECK_ERROR(PrintedError{alone.err}, "schedule.fabric");
    CHECK(simulated({"all", "--topology", cloud, "--hosts", "2"})["algorithms"][0].contains("objection"));
    CHECK(simulate({"ring", "--topology", "/nonexistent.xml"}).exit_status == 1);
    CHECK(simulate({"ring", "--topology", machines + "../broken/truncated.xml"}).exit_status == 1);
}

TEST_CASE("weft schedule simulate shows the cost of slow and failed parts", "[schedule]") {
    const std::vector<std::string> whole = {"ring", "--hosts", "2", "-b", "16M"};
    const auto with = [&](std::vector<std::string> words) {
        words.insert(words.begin(), whole.begin(), whole.end());
        return words;
    };
    const double healthy_us = simulated(whole)["us"];
    double before_us = healthy_us;
    for (const char* factor : {"2", "4", "8.5"}) {
        const Json found = simulated(with({"--slow-link", std::string("network out of rank 7=") + factor}));
        CHECK(found["healthy_us"] == healthy_us);
        CHECK(found["us"].get<double>() > before_us);
        before_us = found["us"];
    }
    const double rank_us = simulated(with({"--slow-rank", "9=3"}))["us"];
    CHECK(rank_us > healthy_us);
    CHECK(simulated(with({"--slow-host", "1=3"}))["us"].get<double>() >= rank_us);
    CHECK(simulate(with({"--slow-rank", "9=3"})).out.find("\nwithout the damage ") != std::string::npos);
    const std::pair<std::vector<std::string>, const char*> mistakes[] = {
        {{"--slow-link", "network out of rank 99=2"}, "[schedule.fabric] `network out of rank 99`"},
        {{"--slow-link", "network out of rank 7"}, "[command.option] --slow-link takes a name and a number"},
        {{"--slow-link", "network out of rank 7=0.5"}, "[command.option] from 1 to 1000000"},
        {{"--slow-link", "network out of rank 7=1e308"}, "[command.option] from 1 to 1000000"},
        {{"--slow-rank", "9=1e7"}, "[command.option] from 1 to 1000000"},
        {{"--slow-rank", "9=1e6", "--slow-host", "1=2"}, "[command.option] --slow-rank 9: the factors together"},
        {{"--slow-link", "network out of rank 7=1e6", "--slow-link", "network out of rank 7=1e6"},
         "[command.option] --slow-link network out of rank 7: the factors together"},
        {{"--set", "net_us=1e300"}, "[schedule.fabric] from 0 to 1e15"},
        {{"--set", "net_bytes_per_us=1e-300"}, "[schedule.fabric] from 1e-6 to 1e15"},
        {{"--slow-link", "network out of rank 7=nan"}, "[command.option] --slow-link takes a name and a number"},
        {{"--set", "step=2"}, "[schedule.fabric] `step`"},
        {{"--set", "net_bytes_per_us=0"}, "[schedule.fabric] net_bytes_per_us"},
        {{"--slow-host", "2=2"}, "[command.option] --slow-host: `2`"},
        {{"--slow-rank", "x=2"}, "[command.option] --slow-rank: `x`"},
        {{"--fail-link", "network out of rank 7"}, "[schedule.fabric] rank 7 to rank 8"},
    };
    for (const auto& [words, sentence] : mistakes) {
        const ProcessResult outcome = simulate(with(words));
        INFO(outcome.err);
        CHECK(outcome.exit_status == 2);
        CHECK_EXPECTED(PrintedError{outcome.err}, sentence);
    }
}

TEST_CASE("weft schedule simulate takes given times of devices in place of a protocol's and a network's",
          "[schedule]") {
    for (const bool over_rdma : {false, true})
        for (const std::string time : {"start_us", "peer_us", "net_us"}) {
            const auto us = [&](const char* value) {
                std::vector<std::string> words = {"ring", "--hosts", "2", "-b", "1K", "--set", time + "=" + value};
                if (over_rdma) words.insert(words.end(), {"--network", "ndr"});
                return simulated(words)["us"].get<double>();
            };
            INFO(time << (over_rdma ? " over RDMA" : ""));
            CHECK(us("50") > us("20") + 25);
        }
}

TEST_CASE("weft schedule simulate continues without hosts that failed", "[schedule]") {
    const std::vector<std::string> whole = {"--hosts", "4", "--host", "dgx-a100", "-b", "16M"};
    const auto with = [&](const char* algorithm, std::vector<std::string> words) {
        words.insert(words.begin(), whole.begin(), whole.end());
        words.insert(words.begin(), algorithm);
        return words;
    };
    const Json three = simulated(with("ring", {"--fail-host", "2"}));
    CHECK(three["ranks"] == 24);
    CHECK(three["hosts"] == 3);
    CHECK(three["healthy_us"] == simulated(with("ring", {}))["us"]);
    CHECK(three["us"] == simulated({"ring", "--hosts", "3", "--host", "dgx-a100", "-b", "16M"})["us"]);
    CHECK(simulated(with("ring", {"--fail-host", "2", "--fail-host", "0"}))["ranks"] == 16);
    CHECK(simulate(with("ring", {"--fail-host", "1"})).out.find("24 ranks on 3 dgx-a100") != std::string::npos);
    CHECK(simulated(with("linear", {"--collective", "gather", "--root", "31", "--fail-host", "0"}))["ranks"] == 24);
    // The algorithms that can serve the hosts that are left.
    const Json all = simulated(with("all", {"--fail-host", "3"}));
    CHECK(all["algorithms"][0]["us"].get<double>() > 0);
    CHECK(all["algorithms"][0]["healthy_us"].get<double>() > 0);
    // Machines of a file, one of which is removed, and copies without it.
    const std::string file = machines + "dgx_h100.xml";
    const Json left = simulated({"ring", "--topology", file, "--hosts", "3", "-b", "16M", "--fail-host", "1"});
    CHECK(left["ranks"] == 16);
    CHECK(left["us"] == simulated({"ring", "--topology", file, "--hosts", "2", "-b", "16M"})["us"]);
    const std::pair<std::vector<std::string>, const char*> mistakes[] = {
        {{"--fail-host", "4"}, "[command.option] --fail-host: `4`"},
        {{"--fail-host", "0", "--fail-host", "1", "--fail-host", "2", "--fail-host", "3"},
         "[command.option] none of the 4 hosts"},
        {{"--fail-host", "0", "--slow-rank", "1=2"}, "[command.option] --fail-host excludes"},
        {{"--collective", "broadcast", "--root", "9", "--fail-host", "1"}, "[command.option] --root 9 is on host 1"},
    };
    for (const auto& [words, sentence] : mistakes) {
        const ProcessResult outcome = simulate(with("ring", words));
        INFO(outcome.err);
        CHECK(outcome.exit_status == 2);
        CHECK_EXPECTED(PrintedError{outcome.err}, sentence);
    }
}

TEST_CASE("weft schedule simulate searches rings that keep to the links that are left", "[schedule]") {
    // On a hybrid cube mesh, where rings follow the existing NVLinks.
    const std::string file = machines + "dgx1_v100.xml";
    std::vector<std::string> words = {"ring", "--topology", file, "-b", "64M"};
    const Json whole = simulated(words);
    for (const char* link : {"nvlink from gpu 0 (0000:06:00.0) to gpu 1 (0000:07:00.0)",
                             "nvlink from gpu 1 (0000:07:00.0) to gpu 0 (0000:06:00.0)"})
        words.insert(words.end(), {"--fail-link", link});
    const Json found = simulated(words);
    INFO(found.dump(2));
    CHECK(found["healthy_us"] == whole["us"]);
    REQUIRE(found.contains("old_rings_us"));
    CHECK(found["us"].get<double>() < found["old_rings_us"].get<double>());
    CHECK(simulate(words).out.find("\nby the rings of before ") != std::string::npos);
    // Equal hosts have no other route.
    CHECK_FALSE(simulated({"ring", "--hosts", "2", "-b", "16M"}).contains("old_rings_us"));
}

TEST_CASE("weft schedule simulate shows the algorithm that Weft would choose", "[schedule]") {
    const auto choice = [](std::vector<std::string> words) {
        words.insert(words.begin(), "all");
        const Json all = simulated(words);
        return all["choice"].is_string() ? all["choice"].get<std::string>() : "";
    };
    CHECK(choice({"-n", "4", "--host", "cpu-10g", "-b", "1K"}) == "one_shot");
    CHECK(choice({"-n", "4", "--host", "cpu-10g", "-b", "1M"}) == "two_shot");
    CHECK(choice({"-n", "8", "--host", "dgx-h100", "-b", "64M"}) == "two_shot");
    CHECK(choice({"--hosts", "2", "--host", "dgx-h100", "-b", "64M", "--collective", "broadcast"}) != "");
    // Device memory of so many ranks is not served.
    CHECK(choice({"--hosts", "10", "--host", "dgx-h100", "-b", "1K", "--collective", "barrier"}) == "");
    const ProcessResult table = simulate({"all", "-n", "4", "--host", "cpu-10g", "-b", "1M"});
    CHECK(table.out.find("\nWeft would choose two_shot: ") != std::string::npos);
    CHECK(simulate({"all", "--hosts", "10", "-b", "1K", "--collective", "barrier"})
              .out.find("\nWeft would choose none: device memory is served for up to 72 ranks") != std::string::npos);
}

TEST_CASE("weft schedule simulate takes constants that were measured", "[schedule]") {
    const auto us = [](const char* bytes, std::vector<std::string> words) {
        words.insert(words.begin(), {"ring", "--host", "cpu-10g", "-n", "2", "-b", bytes});
        return simulated(words)["us"].get<double>();
    };
    CHECK(us("64M", {"--set", "step_us=0.8"}) > us("64M", {}));
    CHECK(us("64M", {"--set", "block_bytes_per_us=1000"}) > 10 * us("64M", {}));
    // Data that fits the caches never goes to memory.
    const std::vector<std::string> slow = {"--set", "memory_bytes_per_us=100"};
    CHECK(us("64M", slow) > 50 * us("64M", {}));
    CHECK(us("1M", slow) == us("1M", {}));
    CHECK(us("1M", {"--set", "memory_bytes_per_us=100", "--set", "cache_bytes=1e6"}) > 50 * us("1M", {}));
}

TEST_CASE("weft schedule simulate all compares the algorithms that can serve, the fastest first", "[schedule]") {
    const std::vector<std::string> words = {"all", "--hosts", "2", "-b", "1M", "--fail-link", "network out of rank 3"};
    const Json found = simulated(words);
    double before_us = 0;
    int cut_off = 0;
    for (const Json& row : found["algorithms"]) {
        CHECK(row.contains("healthy_us"));
        cut_off += row.contains("objection");
        if (!row.contains("us")) continue;
        CHECK(cut_off == 0);
        CHECK(row["us"].get<double>() >= before_us);
        before_us = row["us"];
        CHECK(simulated({row["algorithm"], "--hosts", "2", "-b", "1M"})["us"] == row["healthy_us"]);
    }
    // Only algorithms that end at one rank of each host still reach all ranks.
    CHECK(cut_off > 0);
    CHECK(found["algorithms"].size() > size_t(cut_off));
    const ProcessResult table = simulate(words);
    CHECK(table.out.find("all_reduce of 1048576 bytes, 16 ranks on 2 dgx-h100\n\nalgorithm ") == 0);
    CHECK(table.out.find(" no route connects rank 3 to rank ") != std::string::npos);
    CHECK(simulate({"all", "--ranks", "2", "--trace", "/tmp/none.json"}).exit_status == 2);
    CHECK_EXPECTED(PrintedError{simulate({"all", "--ranks", "2", "--collective", "reduc"}).err},
                   "[command.option] `reduc`");
}

TEST_CASE("weft schedule simulate --tune writes a file that selects the fastest algorithm on such hosts",
          "[schedule]") {
    const TemporaryFile file;
    const std::vector<std::string> hosts = {"all", "--hosts", "4", "-n", "8", "--host", "cpu-10g"};
    const auto with = [&](std::vector<std::string> words) {
        words.insert(words.begin(), hosts.begin(), hosts.end());
        return words;
    };
    const ProcessResult written = simulate(with({"-b", "64K", "--tune", file.name}));
    INFO(written.err);
    REQUIRE(written.exit_status == 0);
    CHECK(written.out.find("of 8 ranks on 4 cpu-10g: WEFT_TUNE_FILE=" + file.name) != std::string::npos);
    const auto tuning = tuning_of_file(file.name);
    REQUIRE(tuning.ok());
    REQUIRE(*tuning);
    CHECK(read_tuning(tuning_text(**tuning))->simulated == "4 cpu-10g");
    const Layout layout = layout_in_blocks(8, 4);
    const Costs costs(network_link_costs(1, 25'000), *tuning), on_one(network_link_costs(1, 0, true, true), *tuning);
    for (const Collective collective : all_collectives) {
        INFO(name_of(collective));
        Operation operation;
        operation.collective = collective;
        operation.type = weftUint8;
        operation.op = weftSum;
        const bool sized = collective != Collective::barrier;
        for (const uint64_t bytes : {8, 4096, 65536}) {
            operation.count = sized ? bytes / uint64_t(parts_of(collective, 8)) : 1;
            const Json all = simulated(with({"-b", std::to_string(bytes), "--collective", name_of(collective)}));
            const auto choice = select(operation, layout, costs, {}, registry::algorithms());
            REQUIRE(choice.ok());
            CHECK(choice->algorithm->name == all["algorithms"][0]["algorithm"]);
            CHECK(choice->predicted.basis == Basis::simulated);
            // Containers of one machine are other hosts.
            CHECK(select(operation, layout, on_one, {}, registry::algorithms())->predicted.basis == Basis::model);
        }
    }
    // Other numbers of ranks, and rows of one collective.
    Operation more;
    more.collective = Collective::all_reduce;
    more.type = weftUint8;
    more.op = weftSum;
    more.count = 4096;
    CHECK(explain(more, layout_in_blocks(16, 4), costs, {}, registry::algorithms())
              .find("us predicted from what was simulated") != std::string::npos);
    CHECK(simulate(with({"-b", "64", "--tune", file.name, "--collective", "AllReduce"})).exit_status == 0);
    const auto one = read_tuning(file_text(file.name));
    REQUIRE(one.ok());
    for (const Tuning::Curve& curve : one->curves) CHECK(curve.collective == Collective::all_reduce);
    const std::pair<std::vector<std::string>, const char*> mistakes[] = {
        {{"all", "--hosts", "2", "--tune", file.name}, "[command.option] --tune is for ranks that are threads"},
        {{"all", "-n", "1", "--host", "cpu-10g", "--tune", file.name},
         "[command.option] --tune is for 2 to 4096 ranks"},
        {{"ring", "-n", "2", "--host", "cpu-10g", "--tune", file.name},
         "[command.option] --tune needs `all` algorithms"},
        {with({"--tune", file.name, "--collective", "reduc"}), "[command.option] `reduc`"},
        {with({"--tune", file.name, "--network", "ndr"}), "[command.option] leave --network out"},
        {with({"--tune", file.name, "--set", "net_us=2"}), "[command.option] leave --set out"},
    };
    for (const auto& [words, sentence] : mistakes) {
        const ProcessResult outcome = simulate(words);
        INFO(outcome.err);
        CHECK(outcome.exit_status == 2);
        CHECK_EXPECTED(PrintedError{outcome.err}, sentence);
    }
    CHECK(simulate(with({"-b", "8", "--collective", "barrier", "--tune", "/nonexistent/x.json"})).exit_status == 1);
}

TEST_CASE("a very long simulation is refused with the reason, or announced", "[simulate]") {
    const ProcessResult refused = simulate({"ring", "--hosts", "2", "--bytes", "256T"});
    CHECK(refused.exit_status == 2);
    CHECK(refused.err.find("the message is of very many tiles: say fewer --bytes") != std::string::npos);
    CHECK_ERROR(PrintedError{refused.err}, "schedule.limit");
    const ProcessResult announced = simulate({"ring", "--hosts", "300", "--bytes", "16K"});
    CHECK(announced.exit_status == 0);
    CHECK(announced.err.find("many chunks are empty, so every rank is simulated: fewer --channels or more") !=
          std::string::npos);
    // More steps than that: then one host's ranks stand for all.
    const std::string h100 = machines + "dgx_h100.xml";
    const std::vector<std::string> longer[] = {{"ring", "--topology", h100, "--hosts", "512"},
                                               {"ring", "--hosts", "1250", "--bytes", "64K"}};
    for (const auto& words : longer) {
        const ProcessResult simulated = simulate(words);
        INFO(simulated.err);
        CHECK(simulated.exit_status == 0);
        CHECK(simulated.out.find("all chunks count as of one size, empty ones too") != std::string::npos);
    }
    CHECK(simulate({"ring", "--hosts", "2", "--bytes", "257T"}).err.find("256T") != std::string::npos);
    CHECK(simulate({"ring", "--hosts", "2", "--bytes", "1E"}).exit_status == 2);
    // A long simulation begins with a line; short ones print none.
    CHECK(simulate({"ring", "--hosts", "2"}).err == "");
}

TEST_CASE("weft schedule simulate --trace writes the events in order", "[schedule]") {
    const TemporaryFile file;
    const Json found = simulated({"ring", "--hosts", "2", "-b", "1M", "--every-rank", "--trace", file.name});
    const Json trace = Json::parse(file_text(file.name));
    CHECK(trace["otherData"]["us"] == found["us"]);
    CHECK(trace["otherData"]["ranks_left_out"] == 0);
    std::map<std::pair<int, int>, double> ends;  // of each thread's slices, which lie one behind the other
    uint64_t sends = 0;
    int waits = 0, counters = 0, names = 0;
    for (const Json& event : trace["traceEvents"]) {
        names += event["ph"] == "M";
        counters += event["ph"] == "C";
        if (event["ph"] != "X") continue;
        double& end = ends[{event["pid"], event["tid"]}];
        CHECK(event["ts"].get<double>() >= end * (1 - 1e-12));
        end = event["ts"].get<double>() + event["dur"].get<double>();
        CHECK(end <= found["us"].get<double>());
        if (event["cat"] == "wait") {
            ++waits;
            CHECK(event["name"].get<std::string>().find("waits for ") == 0);
        } else if (event["args"].contains("target")) {
            ++sends;
            CHECK(event["args"]["target"] == (event["pid"].get<int>() + 1) % 16);
        }
    }
    CHECK(sends == found["messages"]);
    CHECK(ends.size() == 32);
    CHECK(names == 16 + 32 + 1);
    CHECK(waits > 0);
    CHECK(counters > 0);
    const ProcessResult bounded = simulate({"ring", "--hosts", "4", "--trace", file.name, "--trace-ranks", "3"});
    CHECK(bounded.out.find("5 further ranks are left out, see --trace-ranks") != std::string::npos);
    CHECK(Json::parse(file_text(file.name))["otherData"]["ranks_left_out"] == 5);
    const ProcessResult nowhere = simulate({"ring", "--ranks", "4", "--trace", "/nonexistent/trace.json"});
    CHECK(nowhere.exit_status == 1);
    CHECK(nowhere.err.find("/nonexistent/trace.json could not be written") != std::string::npos);
}

TEST_CASE("weft schedule simulate takes a file in the place of a name, with the same options", "[schedule]") {
    const std::string folder = std::string(WEFT_SCHEDULES) + "/", ring = folder + "ring_all_reduce_4.txt",
                      chain = folder + "msccl/chain_broadcast_4.xml";
    // Equal schedules take equal time, whatever their source.
    for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
             {"-b", "1M"},
             {"-b", "1M", "--hosts", "2"},
             {"-b", "64K", "--host", "cpu-100g", "--hosts", "4", "--slow-rank", "1=2"}}) {
        std::vector<std::string> named = {"ring", "-n", "4", "-c", "1"}, file = {ring};
        named.insert(named.end(), options.begin(), options.end());
        file.insert(file.end(), options.begin(), options.end());
        CHECK(simulated(file) == simulated(named));
    }
    CHECK(simulated({ring, "--topology", machines + "dgx1_v100.xml"})["ranks"] == 4);
    const Json xml = simulated({chain, "--host", "cpu-100g"});
    CHECK(xml["algorithm"] == "chain");
    CHECK(xml["collective"] == "broadcast");
    CHECK(xml["ranks"] == 4);
    TemporaryFile trace;
    CHECK(simulate({chain, "--trace", trace.name}).exit_status == 0);
    CHECK(!file_text(trace.name).empty());
    CHECK(simulate({chain, "-n", "8"}).exit_status == 2);
    CHECK(simulate({chain, "--collective", "reduce"}).exit_status == 2);
    CHECK(simulate({chain, "--hosts", "2", "--fail-host", "1"}).exit_status == 2);
    CHECK(simulate({folder + "msccl/wrong/double_reduction.xml"}).exit_status == 1);
    CHECK(simulate({"/nonexistent/ring.xml"}).exit_status == 1);
}
