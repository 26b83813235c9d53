// fabric_test.cpp: NVLink domains of several simulated hosts (WEFT_HOSTID) on the fake driver. Kernels reach the memory
// of all ranks by fabric handles. Where they cannot, the network serves as without a domain.
#include "tests/device/job.hpp"

namespace weft::internal::test {

namespace {

const char* const in_domain = "gpus 4; fabric * 7; leaks fatal";
const char* const spans = "one NVLink domain has all ";
const char* const falls_back = "the hosts are in one NVLink domain, but use the network between them: ";

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

}  // namespace

TEST_CASE("hosts of one NVLink domain reach each other's device memory, and send messages over the network",
          "[fabric]") {
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
                job.start({"init", "reduce 1001", "all 3001", "reduce 70000", "destroy"},
                          in_domain + std::string(one == host ? std::string("; ") + obstacle.there : ""));
            job.finish();
            CHECK_FALSE(contains(job[0].error(), spans));
            CHECK(contains(job[0].error(), falls_back + std::string("rank ")));
            CHECK(contains(job[0].error(), obstacle.text));
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
