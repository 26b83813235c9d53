// verbs_jobs_test.cpp: jobs of several simulated hosts over the fake libibverbs, with RDMA missing or failing, too.
#include <cstring>
#include <string>

#include "tests/catch.hpp"
#include "tests/subprocess.hpp"
#include "tests/verbs/limited_pinning.hpp"

namespace weft::internal::test {
namespace {

struct VerbsJob {
    std::string said, log;
    int count(const std::string& text) const { return count(said, text); }
    static int count(const std::string& all, const std::string& text) {
        int found = 0;
        for (size_t at = all.find(text); at != std::string::npos; at = all.find(text, at + 1)) ++found;
        return found;
    }
};
VerbsJob verbs_job(int ranks, std::vector<std::string> variables) {
    // The first of two values counts, so a test's own comes before these.
    variables.push_back("WEFT_TRANSPORTS=^shm");
    variables.push_back("WEFT_DEBUG=INFO");
    variables.push_back(std::string("WEFT_VERBS_LIBRARY=") + FAKE_IBVERBS_LIBRARY);
    const ProcessResult result =
        run({WEFT_COMMAND, "run", "--no-kill", "-n", std::to_string(ranks), PLUGIN_WORKER}, std::move(variables));
    return {"\n" + result.output, result.error};
}

std::string infiniband_port(const std::string& subnet) {
    return "device fake0; layer fake0 1; no_gids fake0; gid fake0 0 " + subnet + ":0000:00ff:fe00:0001 0 0";
}

}  // namespace

TEST_CASE("collectives and messages between hosts go over verbs", "[verbs]") {
    const int ranks = GENERATE(2, 3);
    const VerbsJob done = verbs_job(ranks, {"FAKE_IBVERBS=hold 100; late 50"});
    INFO(done.said << done.log);
    CHECK(done.count(": ok") == ranks);
    CHECK_THAT(done.log, Catch::Contains("over verbs, channel") && Catch::Contains("fake0:1 GID 3 10.77.0.1"));
    CHECK_THAT(done.log, !Catch::Contains("over tcp, channel"));
    // The subnets of fake0 and fake1 do not reach each other.
    CHECK_THAT(done.log, Catch::Contains("fake1:1 GID 3 10.77.1.1") && Catch::Contains(", in reserve"));
}

TEST_CASE("the choice of an algorithm counts with the costs of RDMA, and its log names verbs", "[verbs]") {
    const auto choices = [](const VerbsJob& job) {
        const size_t at = job.log.find("all_reduce of 1001 float, sum");
        return job.log.substr(std::min(at, job.log.size()), 120);
    };
    const VerbsJob fast = verbs_job(2, {}), slow = verbs_job(2, {"WEFT_TRANSPORTS=tcp"});
    INFO(fast.log << slow.log);
    CHECK_THAT(choices(fast), Catch::Contains(" over verbs, "));
    CHECK_THAT(choices(slow), Catch::Contains(" over tcp, "));
    // Two rails have half the time of a byte on the network; copies take as long as before.
    const VerbsJob rails = verbs_job(2, {"WEFT_IB_RAILS=2"});
    INFO(rails.log);
    const auto predicted_us = [](const VerbsJob& job) {
        const size_t at = job.log.find(" over verbs, ", job.log.find("all_reduce of 300007 float, sum"));
        REQUIRE(at != std::string::npos);
        return std::stod(job.log.substr(at + strlen(" over verbs, ")));
    };
    CHECK(predicted_us(rails) < 0.98 * predicted_us(fast));
    // A rank without RDMA: all count with TCP.
    CHECK_THAT(choices(verbs_job(3, {"ONLY_RANK=1"})), Catch::Contains(" over tcp, "));
}

TEST_CASE("if one rank has no RDMA, both use tcp, and a warning says why", "[verbs]") {
    const std::string only = GENERATE("0", "1");
    const VerbsJob done = verbs_job(2, {"ONLY_RANK=" + only});
    INFO(done.said << done.log);
    CHECK(done.count(": ok") == 2);
    CHECK_THAT(done.log, Catch::Contains("WARN") && Catch::Contains("over tcp, because"));
}

TEST_CASE("hosts of different networks use tcp, and a warning says why", "[verbs]") {
    const auto [all, odd] = GENERATE(table<std::string, std::string>({
        {"hold 1", "layer fake0 1; layer fake1 1"},  // RoCE and InfiniBand
        {infiniband_port("fe80:0000:0000:0000"), infiniband_port("fec0:0000:0000:0007")},
    }));
    const VerbsJob done = verbs_job(2, {"FAKE_IBVERBS=" + all, "ODD_RANK=1", "ODD_WORLD=" + odd});
    INFO(done.said << done.log);
    CHECK(done.count(": ok") == 2);
    CHECK_THAT(done.log, Catch::Contains("WARN") && Catch::Contains("over tcp, because") &&
                             Catch::Contains("this rank does not have the transports of that one"));
    CHECK_THAT(done.log, !Catch::Contains("over verbs, channel"));
}

TEST_CASE("hosts that prefer different link layers use one that both have", "[verbs]") {
    const auto infiniband = [](const std::string& device, const std::string& last) {
        return "layer " + device + " 1; no_gids " + device + "; gid " + device +
               " 0 fe80:0000:0000:0000:0000:00ff:fe00:" + last + " 0 0";
    };
    const auto [all, odd, lid] = GENERATE_COPY(table<std::string, std::string, bool>({
        // The slower ports of both layers are as fast.
        {infiniband("fake1", "0001") + "; speed fake1 2 32", infiniband("fake1", "0002") + "; speed fake0 2 32", true},
        {infiniband("fake1", "0001"), "hold 1", false},  // RoCE only
        {infiniband("fake1", "0001"), infiniband("fake0", "0002") + "; port fake1 down", true},
    }));
    const VerbsJob done = verbs_job(2, {"FAKE_IBVERBS=" + all, "ODD_RANK=1", "ODD_WORLD=" + odd});
    INFO(done.said << done.log);
    CHECK(done.count(": ok") == 2);
    CHECK_THAT(done.log, Catch::Contains("over verbs, channel") && !Catch::Contains("over tcp, channel"));
    CHECK((done.log.find(" LID ") != std::string::npos) == lid);
}

TEST_CASE("if each rail of InfiniBand has a subnet, one port that is down does not cost RDMA", "[verbs]") {
    const auto rail = [](const std::string& device, const std::string& subnet, const std::string& last) {
        return "layer " + device + " 1; no_gids " + device + "; gid " + device + " 0 " + subnet +
               ":0000:00ff:fe00:" + last + " 0 0; ";
    };
    const auto host = [&](const std::string& last) {
        return rail("fake0", "fec0:0000:0000:0001", last) + rail("fake1", "fec0:0000:0000:0002", last);
    };
    const std::string down = GENERATE("fake0", "fake1");
    const VerbsJob done = verbs_job(
        2, {"FAKE_IBVERBS=" + host("0001"), "ODD_RANK=1", "ODD_WORLD=" + host("0002") + "port " + down + " down"});
    INFO(done.said << done.log);
    CHECK(done.count(": ok") == 2);
    CHECK_THAT(done.log, Catch::Contains("over verbs, channel") && !Catch::Contains("over tcp, channel"));
}

TEST_CASE("of hosts with ports of InfiniBand and RoCE all use the faster ones", "[verbs]") {
    const auto world = [](const std::string& infiniband, const std::string& last) {
        return "layer " + infiniband + " 1; no_gids " + infiniband + "; gid " + infiniband +
               " 0 fe80:0000:0000:0000:0000:00ff:fe00:" + last + " 0 0";
    };
    const bool fast_ethernet = GENERATE(false, true);
    // Otherwise both are as fast, so InfiniBand counts, and the devices' order differs.
    const std::string all = world("fake1", "0001") + (fast_ethernet ? "; speed fake1 2 32" : ""),
                      odd = fast_ethernet ? all : world("fake0", "0002");
    const VerbsJob done = verbs_job(2, {"FAKE_IBVERBS=" + all, "ODD_RANK=1", "ODD_WORLD=" + odd});
    INFO(done.said << done.log);
    CHECK(done.count(": ok") == 2);
    CHECK_THAT(done.log, Catch::Contains("over verbs, channel") && !Catch::Contains("over tcp, channel"));
    CHECK((done.log.find(" LID ") != std::string::npos) == !fast_ethernet);
}

TEST_CASE("hosts of different MTUs use the smaller one, and InfiniBand its own costs", "[verbs]") {
    const VerbsJob mixed = verbs_job(2, {"ODD_RANK=1", "ODD_WORLD=mtu fake0 3; mtu fake1 3"});
    INFO(mixed.said << mixed.log);
    CHECK(mixed.count(": ok") == 2);
    CHECK(VerbsJob::count(mixed.log, "with an MTU of 1024 bytes") ==
          2 * 2 * 2);  // two queue pairs on each of two rails
    const VerbsJob infiniband = verbs_job(2, {"FAKE_IBVERBS=" + infiniband_port("fe80:0000:0000:0000")});
    INFO(infiniband.said << infiniband.log);
    CHECK(infiniband.count(": ok") == 2);
    CHECK_THAT(infiniband.log, Catch::Contains("over verbs, channel") && Catch::Contains(" LID "));
}

TEST_CASE("a wrong option for RDMA is an error of every rank when the ranks meet", "[verbs]") {
    const auto [variable, id, choice] = GENERATE(table<std::string, std::string, std::string>(
        {{"WEFT_IB_DEVICES=fake7", "option.names", "There are fake0, fake1"},
         {"WEFT_IB_GID_INDEX=77", "option.value", "index 3 10.77.0.1"},
         {"WEFT_IB_PKEY=0x8123", "option.value", "0xffff"},
         {"WEFT_IB_PKEY=first", "option.value", "0x8001"},
         {"WEFT_IB_ADDR_FAMILY=IPv4", "option.value", "AF_INET6"},
         {"WEFT_GDR_LEVEL=near", "option.value", "PIX"}}));
    const VerbsJob done = verbs_job(2, {variable});
    INFO(done.said << done.log);
    CHECK(done.count(": " + id + ": ") == 2);
    CHECK(done.count(choice) == 2);
    CHECK_THAT(done.log, !Catch::Contains(", channel"));
}

TEST_CASE("a device that one host does not have is an error on every rank, and names the rank", "[verbs]") {
    const std::string only = GENERATE("0", "2");
    const VerbsJob done = verbs_job(3, {"WEFT_IB_DEVICES=fake7", "WRONG_RANK=" + only});
    INFO(done.said << done.log);
    CHECK(done.count(": option.names: ") == 3);
    CHECK(done.count("rank " + only + " (pid ") == 3);
}

TEST_CASE("options for RDMA are followed, and do not count where RDMA is off", "[verbs]") {
    const VerbsJob one = verbs_job(2, {"WEFT_IB_DEVICES=fake1", "WEFT_IB_QPS=3"});
    INFO(one.said << one.log);
    CHECK(one.count(": ok") == 2);
    CHECK(VerbsJob::count(one.log, " links rank ") == 2 * 3);  // a line for each queue pair and end
    CHECK_THAT(one.log, Catch::Contains("fake1:1 GID") && !Catch::Contains("fake0:1 GID"));
    for (const char* off : {"WEFT_IB_DISABLE=1", "WEFT_TRANSPORTS=^shm,^verbs"}) {
        const VerbsJob without = verbs_job(2, {"WEFT_IB_DEVICES=fake7", off});
        INFO(without.said << without.log);
        CHECK(without.count(": ok") == 2);
        CHECK_THAT(without.log, Catch::Contains("over tcp, channel"));
    }
}

TEST_CASE("hosts without an active port use tcp", "[verbs]") {
    const VerbsJob done = verbs_job(2, {"FAKE_IBVERBS=port fake0 down; port fake1 down"});
    INFO(done.said << done.log);
    CHECK(done.count(": ok") == 2);
    CHECK_THAT(done.log, Catch::Contains("over tcp, channel"));
}

TEST_CASE("without memory that may be pinned every rank returns an error that says what to do", "[verbs]") {
    const LimitedPinning limited;
    const VerbsJob done = verbs_job(2, {"FAKE_IBVERBS=memlock 65536"});
    INFO(done.said << done.log);
    CHECK(done.count(": verbs.memlock: ") == 2);
    CHECK(done.count("ulimit -l unlimited") == 2);
}

TEST_CASE("without another queue pair, a request that fails is an error on every rank", "[verbs]") {
    const VerbsJob done = verbs_job(2, {"FAKE_IBVERBS=complete 12 40", "WEFT_IB_DEVICES=fake0", "WEFT_IB_QPS=1"});
    INFO(done.said << done.log);
    CHECK(done.count("\nrank 0: ") == 1);
    CHECK(done.count("\nrank 1: ") == 1);
    CHECK(done.count(": ok") == 0);
    CHECK_THAT(done.said, Catch::Contains("verbs.completion"));
}

TEST_CASE("windows that are registered again get the puts of their own time only", "[verbs]") {
    const VerbsJob good = verbs_job(2, {"WINDOWS=8"});
    INFO(good.said << good.log);
    CHECK(good.count(": ok") == 2);
    CHECK(good.count(": memory is whole") == 2);
    CHECK(good.count("damaged") == 0);
    CHECK(good.count(": ended window: argument.handle") == 2);
    // A put with the key of an earlier window, whose memory is registered again, too.
    const VerbsJob old = verbs_job(2, {"WINDOWS=8", "ODD_RANK=1", "ODD_WORLD=old_key 3"});
    INFO(old.said << old.log);
    CHECK(old.count(": ok") == 0);
    for (const char* rank : {"\nrank 0: verbs.completion: ", "\nrank 1: verbs.completion: "})
        CHECK(old.count(rank) == 1);
    CHECK_THAT(old.log, Catch::Contains("got a request without access rights"));
    CHECK(old.count(": memory is whole") == 2);
    CHECK(old.count("damaged") == 0);
}

TEST_CASE("weft rdma-check tests and measures RDMA between two hosts, and provokes failures", "[verbs]") {
    // A launcher starts both.
    const ProcessResult good =
        run({WEFT_COMMAND, "run", "-n", "2", "--no-kill", WEFT_COMMAND, "rdma-check", "--runs", "1"},
            {"WEFT_TRANSPORTS=^shm", "WEFT_DEBUG=NONE", std::string("WEFT_VERBS_LIBRARY=") + FAKE_IBVERBS_LIBRARY,
             "FAKE_IBVERBS=hold 5", "PATH=/none"});
    INFO(good.output << good.error);
    CHECK(good.status == 0);
    for (const char* row :
         {"fake0:1 ", "messages, collectives, windows   ok, 26 checked", "links rank 0 on ",
          "a device that does not exist     ok, option.names on both ranks",
          "RDMA on one host only            ok, both use TCP", "a rank that is killed            ok, an error after ",
          "8 B, half round trip ", "registration of 64 MiB "})
        CHECK_THAT(good.output, Catch::Contains(row));
    // A fault is told: the first message never completes.
    const ProcessResult bad =
        run({WEFT_COMMAND, "run", "-n", "2", "--no-kill", WEFT_COMMAND, "rdma-check", "--quick", "--no-failures"},
            {"WEFT_TRANSPORTS=^shm", "WEFT_DEBUG=NONE", std::string("WEFT_VERBS_LIBRARY=") + FAKE_IBVERBS_LIBRARY,
             "FAKE_IBVERBS=complete 12 5", "WEFT_IB_DEVICES=fake0", "WEFT_IB_QPS=1"});
    INFO(bad.output << bad.error);
    CHECK(bad.status != 0);
    CHECK_THAT(bad.output, Catch::Contains("FAILED: rank ") && Catch::Contains("verbs.completion"));
    const ProcessResult none = run({WEFT_COMMAND, "run", "-n", "2", "--no-kill", WEFT_COMMAND, "rdma-check", "--quick"},
                                   {"WEFT_TRANSPORTS=^shm", "WEFT_DEBUG=NONE", "WEFT_VERBS_LIBRARY=none"});
    CHECK(none.status != 0);
    CHECK_THAT(none.output, Catch::Contains("no RDMA: "));
    CHECK(run({WEFT_COMMAND, "rdma-check", "--join", "127.0.0.1"}).status == 2);  // without a secret
}

// Not rank 0: without the root, ranks that wait for each other only may learn of it late.
TEST_CASE("if a rank is killed, the other ranks return an error that names it", "[verbs]") {
    const VerbsJob done = verbs_job(3, {"KILLED_RANK=2"});
    INFO(done.said << done.log);
    CHECK(done.count("\nrank 2: ") == 0);
    CHECK(done.count(": host.lost: ") == 2);
    CHECK(done.count("rank 2 (pid ") >= 2);
}

TEST_CASE("if a rail fails, the job goes on with the other one, and each rank warns", "[verbs]") {
    const auto [fault, rails] = GENERATE(table<std::string, std::string>(
        {{"complete 12 40", "1"},
         {"after 40 port fake0 down", "1"},
         {"down_status 2; after 30 port fake1 down; after 60 port fake1 up; after 90 port fake0 down", "2"},
         {"after 50 remove fake0", "1"},
         {"after 30 remove fake1", "2"}}));
    const VerbsJob done = verbs_job(2, {"FAKE_IBVERBS=" + fault, "WEFT_IB_RAILS=" + rails, "WEFT_IB_TIMEOUT=10"});
    INFO(done.said << done.log);
    CHECK(done.count(": ok") == 2);
    for (const char* rank : {"[0] WEFT WARN sends to rank 1 by", "[1] WEFT WARN sends to rank 0 by"})
        CHECK_THAT(done.log, Catch::Contains(rank));
}

TEST_CASE("without another rail, a link that goes down is an error on every rank, and the log tells it", "[verbs]") {
    const VerbsJob done =
        verbs_job(2, {"FAKE_IBVERBS=down_status 2; after 40 port fake0 down", "WEFT_IB_DEVICES=fake0"});
    INFO(done.said << done.log);
    CHECK(done.count("\nrank 0: verbs.") == 1);
    CHECK(done.count("\nrank 1: verbs.") == 1);
    CHECK_THAT(done.log, Catch::Contains("port 1 of fake0: the link is down"));
}

}  // namespace weft::internal::test
