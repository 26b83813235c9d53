// fabric_test.cpp: NVLink domains of several simulated hosts (WEFT_HOSTID) on the fake driver. Kernels reach the memory
// of all ranks by fabric handles, also for messages. Where they cannot, the network serves as without a domain.
#include <fstream>

#include "tests/device/job.hpp"
#include "tests/folder.hpp"

namespace weft::internal::test {

namespace {

const char* const in_domain = "gpus 4; fabric * 7; leaks fatal";
const char* const spans = "one NVLink domain has all ";
const char* const falls_back = "the hosts are in one NVLink domain, but use the network between them: ";
// The log of a connection of device messages over the network (message_channel_remote).
const char* const messages_connect = ", channel 4096, ";

struct DomainJob : Job {
    DomainJob(int hosts, int processes, int each) : Job(hosts * processes * each, in_domain, 4, each) {
        processes_a_host = processes;
        // The fake driver is NVML, too.
        const std::string driver = environment_of("")[0];
        variables = {"WEFT_DEBUG=INFO", "WEFT_NVML_LIBRARY=" + driver.substr(driver.find('=') + 1)};
    }
};

Steps work() {
    return {"init",           "reduce 0",  "all 0",         "reduce 1",  "reduce 1001", "all 1001", "host 100",
            "messages 30000", "reduce 30", "reduce 300001", "all 70001", "reduce 5",    "destroy"};
}

// In long messages a channel uses its slots several times. They stand beside collectives, whose kernels have the same
// flags.
Steps exchanges() {
    return {"init",         "messages 1",     "messages 0",
            "messages 77",  "messages 30001", "reduce 100",
            "crossing 3",   "crossing 7001",  "counted 3",
            "counted 5001", "replays 70001",  "reduce 70001",
            "replays 5",    "counted 0",      small() ? "messages 200001" : "messages 1300001",
            "host 100",     "reduce 3",       "destroy"};
}

}  // namespace

TEST_CASE("hosts of one NVLink domain reach each other's device memory", "[fabric]") {
    for (const auto& [hosts, processes, each] :
         {std::tuple(2, 1, 1), std::tuple(2, 2, 1), std::tuple(2, 1, 2), std::tuple(3, 1, 1), std::tuple(2, 2, 2)}) {
        if (small() && hosts * processes * each == 3) continue;
        INFO(hosts << " hosts of " << processes << " processes of " << each << " ranks");
        DomainJob job(hosts, processes, each);
        job.start_all(work());
        job.finish();
        CHECK(contains(job[0].error(), spans + std::to_string(hosts) + " hosts"));
        CHECK(contains(job[0].error(), "packet_one_shot"));
        CHECK(contains(job[0].error(), "peer_two_shot"));
    }
}

TEST_CASE("ranks of one NVLink domain choose the same kernels if one host's ranks meet in host memory", "[fabric]") {
    DomainJob job(2, 2, 1);
    const Steps steps = {"init", "floats 1000", "floats 100000", "floats 300000", "reduce 300000", "destroy"};
    for (int process = 0; process < 4; ++process)
        job.start(steps, process < 2
                             ? std::string(in_domain) +
                                   "; fault cuIpcOpenMemHandle 0 201; fault cuMemImportFromShareableHandle 1 101"
                             : std::string(in_domain));
    job.finish();
    CHECK(contains(job[0].error(), "goes through the host's"));
    CHECK(contains(job[0].error(), spans + std::string("2 hosts")));
    CHECK(contains(job[0].error(), "packet_two_shot"));
}

TEST_CASE("messages and uneven parts between hosts of one NVLink domain need no network", "[fabric]") {
    for (const auto& [hosts, processes, each] :
         {std::tuple(2, 1, 1), std::tuple(2, 2, 1), std::tuple(2, 1, 2), std::tuple(3, 1, 1)}) {
        if (small() && hosts * processes * each != 3) continue;
        INFO(hosts << " hosts of " << processes << " processes of " << each << " ranks");
        DomainJob job(hosts, processes, each);
        job.start_all(exchanges());
        job.finish();
        CHECK(contains(job[0].error(), spans + std::to_string(hosts) + " hosts: collectives and messages use"));
        for (int process = 0; process < hosts * processes; ++process)
            CHECK_FALSE(contains(job[process].error(), messages_connect));
    }
}

TEST_CASE("step algorithms and fused kernels follow each other in an NVLink domain of several hosts", "[fabric]") {
    DomainJob job(2, 1, 2);
    job.algo = "all_reduce:ring;broadcast:ring";
    job.start_all(work());
    job.finish();
    CHECK(contains(job[0].error(), spans));
    CHECK(contains(job[0].error(), "over connections"));
    CHECK(contains(job[0].error(), "peer_one_shot"));
}

TEST_CASE("hosts of different NVLink domains, or of none, use the network", "[fabric]") {
    for (const char* other : {"gpus 4; fabric * 8; leaks fatal", "gpus 4; leaks fatal",
                              "gpus 4; fabric * 7; attribute * 128 0; leaks fatal"}) {
        INFO(other);
        DomainJob job(2, 1, 2);
        job.start(work(), in_domain);
        job.start(work(), other);
        job.finish();
        CHECK_FALSE(contains(job[0].error(), spans));
        CHECK_FALSE(contains(job[0].error(), falls_back));
    }
    DomainJob job(2, 1, 1);
    job.variables.push_back("WEFT_GPU_PATH=descriptors");
    job.start_all({"init", "reduce 1001", "destroy"});
    job.finish();
    CHECK_FALSE(contains(job[0].error(), spans));
}

TEST_CASE("if a step of making an NVLink domain of hosts fails on one, all use the network, with a warning",
          "[fabric]") {
    struct Obstacle {
        const char *there, *text;
    };
    for (const Obstacle& obstacle :
         {Obstacle{"imex 0", "/dev/nvidia-caps-imex-channels"},
          Obstacle{"fault cuMemExportToShareableHandle 1 999", "could not export device memory to the NVLink domain"},
          Obstacle{"fault cuMemImportFromShareableHandle 1 801", "the nvidia-imex service"},
          Obstacle{"p2p 1 0 lies", "wrote into its device memory did not arrive"}})
        for (const int host : {0, 1}) {
            // Only a device of another number is lied to.
            if (host == 0 && contains(obstacle.there, "p2p")) continue;
            if (small() && host == 0) continue;
            INFO(obstacle.there << " on host " << host);
            DomainJob job(2, 1, 1);
            for (const int one : {0, 1})
                job.start({"init", "reduce 1001", "messages 30001", "all 3001", "counted 501", "replays 3001",
                           "reduce 70000", "destroy"},
                          in_domain + std::string(one == host ? std::string("; ") + obstacle.there : ""));
            job.finish();
            CHECK_FALSE(contains(job[0].error(), spans));
            CHECK(contains(job[0].error(), falls_back + std::string("rank ")));
            CHECK(contains(job[0].error(), obstacle.text));
            for (const int one : {0, 1}) CHECK(contains(job[one].error(), messages_connect));
        }
}

TEST_CASE("a rank of another host of the NVLink domain that dies or leaves while kernels wait for it is named",
          "[fabric]") {
    for (const bool dies : {true, false}) {
        INFO((dies ? "dies" : "leaves"));
        DomainJob job(2, 1, 1);
        job.start({"init", "reduce 10", "launch 100", "error", "destroy"});
        job.start({"init", "reduce 10", "say ready", dies ? "pause" : "destroy"});
        REQUIRE(job[1].says("ready"));
        const std::string name = "rank 1 (pid " + std::to_string(job[1].pid());
        if (dies) {
            job[1].kill(SIGKILL);
            job[1].wait();
        } else {
            job.finish(1);
        }
        job.finish(0);
        INFO(job[0].output());
        CHECK(contains(job[0].error(), spans));
        CHECK(contains(job[0].output(), "error 6"));
        CHECK((contains(job[0].output(), name) || (dies && contains(job[0].output(), "is lost"))));
    }
}

TEST_CASE("a rank of another host of the NVLink domain that dies or leaves while messages wait for it is named",
          "[fabric]") {
    for (const bool dies : {true, false})
        // Without a collective before, nothing but the message tells that the ranks work. A rank alone on its host is its
        // leader. If it is not, the end of its kernels is reported on request.
        for (const auto& [hosts, processes, before, receives] :
             {std::tuple(3, 1, "say alone", "receive 100"), std::tuple(2, 2, "reduce 10", "receive 100"),
              std::tuple(2, 2, "say alone", "receive 100"), std::tuple(2, 2, "say alone", "receive_in_graph 100")}) {
            INFO(hosts << " hosts, " << (dies ? "dies, " : "leaves, ") << before << ", " << receives);
            DomainJob job(hosts, processes, 1);
            const int victim = hosts * processes - 1, others = victim - (processes - 1);
            job.start({"init", before, receives, "error", "destroy"});
            while (job.started() < others) job.start({"init", before, "error", "destroy"});
            while (job.started() < victim) job.start({"init", before, "pause"});
            job.start({"init", before, "say ready", dies ? "pause" : "destroy"});
            REQUIRE(job[victim].says("ready"));
            const std::string name = "rank " + std::to_string(victim) + " (pid " + std::to_string(job[victim].pid());
            if (dies) {
                job[victim].kill(SIGKILL);
                job[victim].wait();
            }
            for (int rank = 0; rank < others; ++rank) {
                job.finish(rank);
                INFO(job[rank].output());
                CHECK(contains(job[rank].error(), spans) == (rank == 0));
                CHECK(contains(job[rank].output(), "error 6"));
                CHECK((contains(job[rank].output(), name) || (dies && contains(job[rank].output(), "is lost"))));
                CHECK((dies || contains(job[rank].output(), "left the communicator, and kernels of rank 0 wait")));
            }
        }
}

TEST_CASE("a message comes from a rank of another host of the NVLink domain that leaves before its kernel begins",
          "[fabric]") {
    DomainJob job(2, 2, 1);
    job.start({"init", "receive 300001", "state", "destroy"});
    for (const int rank : {1, 2}) {
        (void)rank;
        job.start({"init", "destroy"});
    }
    job.start({"init", "send_late 300001"});
    job.finish();
    CHECK(contains(job[0].error(), spans));
    CHECK(contains(job[0].output(), "state 0\n"));
}

// The receiver's kernel writes into memory of a process that has ended.
TEST_CASE("a message is received from a rank of another host of the NVLink domain whose process has ended",
          "[fabric]") {
    const Folder folder;
    const std::string go = folder.path / "go";
    DomainJob job(2, 1, 1);
    job.start({"init", "await " + go, "receive 20000", "state", "destroy"});
    job.start({"init", "send 20000", "destroy"});
    job.finish(1);
    std::ofstream(go).flush();
    job.finish(0);
    CHECK(contains(job[0].error(), spans));
    CHECK(contains(job[0].output(), "state 0\n"));
}

TEST_CASE("a rank whose messages wait in an NVLink domain while a leader on the way has died gets an error",
          "[fabric]") {
    DomainJob job(3, 1, 1);
    check_dead_leader_on_the_way(job);
}

TEST_CASE("messages between hosts of one NVLink domain that differ, or do not come, name the rank", "[fabric]") {
    DomainJob different(2, 1, 1);
    different.start({"init", "send 100", "error", "destroy"});
    different.start({"init", "receive 101", "error", "destroy"});
    different.finish();
    DomainJob late(3, 1, 1);
    late.variables.push_back("WEFT_TIMEOUT_MS=1000");
    late.start({"init", "receive 100", "error", "destroy"});
    for (const int rank : {1, 2}) {
        (void)rank;
        late.start({"init", "error", "destroy"});
    }
    late.finish();
    for (const int rank : {0, 1}) {
        INFO(different[rank].output() << late[rank].output());
        CHECK(contains(different[rank].output(),
                       "rank 0 called weftSend with 100 uint32 for rank 1, which called "
                       "weftRecv with 101 uint32 from rank 0"));
        CHECK(contains(late[rank].output(), "the kernel of rank 0 waited 1.0 s for messages"));
        CHECK(contains(late[rank].output(), "rank 2 (pid "));
    }
}

TEST_CASE("ranks of one NVLink domain on different hosts that make different calls name both calls", "[fabric]") {
    DomainJob job(2, 1, 1);
    job.start({"init", "launch 100", "error", "destroy"});
    job.start({"init", "launch 200", "error", "destroy"});
    job.finish();
    for (const int rank : {0, 1}) {
        INFO(job[rank].output());
        CHECK(contains(job[rank].output(), "rank 0 called all_reduce of 100 "));
        CHECK(contains(job[rank].output(), "rank 1 called all_reduce of 200 "));
    }
}

}  // namespace weft::internal::test
