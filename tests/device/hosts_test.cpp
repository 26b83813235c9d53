// hosts_test.cpp: ranks of several simulated hosts (WEFT_HOSTID) on the fake driver's devices. Each process's proxy
// carries the traffic between hosts over TCP.
#include <chrono>
#include <thread>

#include "tests/device/job.hpp"

namespace weft::internal::test {

namespace {

struct Shape {
    int hosts, processes, each;  // processes of a host, ranks of a process
    // That reduce between them; those along rails are for several ranks a host.
    std::vector<const char*> algorithms() const {
        std::vector<const char*> all{"ring", "recursive_doubling", "halving_doubling", "double_binary_tree",
                                     "all_pairs"};
        if (processes * each > 1) all.insert(all.end(), {"rail_tree", "rail_halving_doubling", "rail_doubling"});
        return all;
    }
    int ranks() const { return hosts * processes * each; }
    std::string text() const {
        return std::to_string(hosts) + " hosts of " + std::to_string(processes) + " processes of " +
               std::to_string(each) + " ranks";
    }
};

// A worker prints calls that fail.
bool said_nothing_between(Subprocess& process, int ranks) {
    std::string expected = "init 0\n";
    for (int rank = 0; rank < ranks; ++rank) expected += "destroy 0\n";
    return process.output() == expected + "end\n";
}

}  // namespace

TEST_CASE("ranks of several hosts reduce over TCP, by every algorithm", "[hosts]") {
    for (const Shape shape :
         {Shape{2, 1, 1}, Shape{2, 2, 1}, Shape{3, 1, 1}, Shape{2, 1, 2}, Shape{3, 2, 1}, Shape{2, 1, 3}}) {
        const std::vector<const char*> all = shape.algorithms();
        for (const char* algo : all) {
            if (small() && algo != all[size_t(shape.ranks()) % 5] && algo != all.back()) continue;
            INFO(shape.text() << ", " << algo);
            Job job(shape.ranks(), "gpus 4; leaks fatal", 4, shape.each);
            job.processes_a_host = shape.processes;
            job.algo = algo;
            Steps steps{"init"};
            for (const char* count : {"0", "1", "1001", "30000", small() ? "100001" : "700001", "3"})
                for (const char* kind : {"reduce ", "host ", "reduce "}) steps.push_back(kind + std::string(count));
            steps.push_back("destroy");
            job.start_all(steps);
            job.finish();
            for (int process = 0; process < shape.hosts * shape.processes; ++process)
                CHECK(said_nothing_between(job[process], shape.each));
        }
    }
}

TEST_CASE("where the driver of one rank of several hosts is too old all work on copies", "[hosts][copies]") {
    for (const Shape shape : {Shape{2, 1, 1}, Shape{2, 2, 1}, Shape{2, 1, 2}}) {
        INFO(shape.text());
        const std::string machine = "gpus 4; leaks fatal", old_one = "gpus 4; version 12080; leaks fatal";
        Job job(shape.ranks(), machine, 4, shape.each);
        job.processes_a_host = shape.processes;
        const int processes = shape.hosts * shape.processes;
        for (int process = 0; process < processes; ++process)
            job.start({"init", "reduce 0", "reduce 1001", "all 1001", "messages 3001", "reduce 300001", "destroy"},
                      process == processes - 1 ? old_one : machine);
        job.finish();
        CHECK(contains(job[processes - 1].error(), "no kernels of Weft's run on device"));
    }
}

TEST_CASE("every collective works between hosts with each algorithm that WEFT_ALGO admits", "[hosts]") {
    for (const Shape shape : {Shape{2, 1, 1}, Shape{2, 2, 1}, Shape{3, 1, 1}, Shape{2, 1, 2}})
        for (const char* algo :
             {"", "ring", "binomial_tree,halving_doubling", "linear,all_pairs",
              "all_reduce,broadcast:rail_tree;all_gather,reduce_scatter:rail_ring;all_to_all:rail_all_pairs",
              "broadcast:rail_binomial_tree;all_gather,reduce_scatter:rail_all_pairs"}) {
            if (small() && shape.ranks() != 4) continue;
            if (contains(algo, "rail") && shape.processes * shape.each == 1) continue;
            INFO(shape.text() << ", " << algo);
            Job job(shape.ranks(), "gpus 4; leaks fatal", 4, shape.each);
            job.processes_a_host = shape.processes;
            job.algo = algo;
            job.start_all({"init", "all 0", "all 1", "all 1001", small() ? "all 20001" : "all 90001", "host 100",
                           "all 3", "destroy"});
            job.finish();
            for (int process = 0; process < shape.hosts * shape.processes; ++process)
                CHECK(said_nothing_between(job[process], shape.each));
        }
}

TEST_CASE("messages and uneven parts go between hosts, beside those of a host", "[hosts]") {
    for (const Shape shape : {Shape{2, 1, 1}, Shape{2, 2, 1}, Shape{3, 1, 1}, Shape{2, 1, 2}})
        for (const char* machine : {"gpus 4; leaks fatal", "gpus 4; p2p 0 1 0; p2p 1 0 0; leaks fatal"}) {
            if (small() && shape.ranks() != (contains(machine, "p2p") ? 3 : 4)) continue;
            INFO(shape.text() << ", " << machine);
            Job job(shape.ranks(), machine, 4, shape.each);
            job.processes_a_host = shape.processes;
            job.start_all({"init", "messages 1000", "messages 0", "messages 1",
                           small() ? "messages 70000" : "messages 400000", "reduce 1000", "host 10", "messages 77",
                           "destroy"});
            job.finish();
        }
}

TEST_CASE("a process of another host that dies or leaves while others wait for its messages is named", "[hosts]") {
    for (const bool dies : {true, false})
        for (const auto& [shape, victim] :
             {std::pair(Shape{2, 1, 1}, 1), std::pair(Shape{2, 1, 1}, 0), std::pair(Shape{2, 2, 1}, 3)}) {
            INFO(shape.text() << ", rank " << victim << (dies ? " dies" : " leaves"));
            const int waiting = victim == 0 ? 1 : 0;
            Job job(shape.ranks(), "gpus 4; leaks fatal", 4);
            job.processes_a_host = shape.processes;
            // Names of a structured binding are not captured by clang 14.
            const auto start = [&, of = shape, dying = victim](int rank) {
                const bool beside_victim = of.processes == 2 && rank == 2;
                if (rank == dying)
                    job.start({"init", "say ready", dies ? "pause" : "destroy"});
                else if (rank == waiting)
                    job.start({"init", "receive 100", "error", "destroy"});
                else
                    job.start(beside_victim ? Steps{"init", "destroy"} : Steps{"init", "error", "destroy"});
            };
            for (int rank = 0; rank < shape.ranks(); ++rank) start(rank);
            REQUIRE(job[victim].says("ready"));
            const std::string name = "rank " + std::to_string(victim) + " (pid " + std::to_string(job[victim].pid());
            if (dies) job[victim].kill(SIGKILL);
            if (dies) job[victim].wait();
            for (int process = 0; process < shape.ranks(); ++process)
                if (!dies || process != victim) job.finish(process);
            for (int rank = 0; rank < shape.processes * shape.hosts; ++rank) {
                if (rank / shape.processes == victim / shape.processes) continue;
                INFO(job[rank].output());
                CHECK(contains(job[rank].output(), "error 6"));
                CHECK((contains(job[rank].output(), name) || (dies && contains(job[rank].output(), "is lost"))));
                CHECK((dies || contains(job[rank].output(), "left the communicator, and kernels of rank ")));
            }
        }
}

TEST_CASE("a rank whose kernels wait while a leader on the way to the other rank has died gets an error", "[hosts]") {
    Job job(3, "gpus 4; leaks fatal", 4);
    job.processes_a_host = 1;
    check_dead_leader_on_the_way(job);
}

// Rank 0 has told the others of its device, and dies before it has forwarded what rank 2 tells late. Rank 2 has all that
// it needs.
TEST_CASE("a rank that joins its device through a leader that dies gets an error", "[hosts]") {
    Job job(3, "gpus 4", 4);
    job.processes_a_host = 1;
    job.variables = {"WEFT_DEBUG=INFO"};
    for (int rank = 0; rank < 3; ++rank)
        job.start({"init"}, rank == 2 ? "gpus 4; fault cuMemHostAlloc 0 sleep 700" : "gpus 4");
    for (int rank = 0; rank < 2; ++rank)
        REQUIRE(eventually([&] { return contains(job[rank].error(), "messages to other hosts"); }));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    job[0].kill(SIGKILL);
    job[0].wait();
    for (int rank = 1; rank < 3; ++rank) job.finish(rank);
    INFO(job[1].output());
    CHECK(contains(job[1].output(), "init 6"));
    CHECK(contains(job[1].output(), "rank 0"));
}

TEST_CASE("devices of a host that do not reach each other go through its memory, and on to other hosts", "[hosts]") {
    Job job(4, "gpus 4; p2p 0 1 0; p2p 1 0 0; leaks fatal", 4);
    job.processes_a_host = 2;
    job.variables = {"WEFT_DEBUG=WARN"};
    job.start_all({"init", "reduce 1000", "reduce 300001", "all 5000", "host 1000", "reduce 0", "destroy"});
    job.finish();
    for (int rank = 0; rank < 4; ++rank) CHECK(said_nothing_between(job[rank], 1));
    CHECK(contains(job[0].error(), "device memory goes through the host's, which is slow: rank "));
    CHECK_FALSE(contains(job[2].error(), "goes through the host's"));
}

TEST_CASE("one host's ranks share their devices' memory by descriptors, the other's by cuIpc", "[hosts]") {
    Job job(4, "gpus 4; leaks fatal", 4);
    job.processes_a_host = 2;
    job.variables = {"WEFT_DEBUG=INFO"};
    for (int process = 0; process < 4; ++process)
        job.start({"init", "reduce 1000", "reduce 300001", "all 5000", "host 1000", "reduce 0", "destroy"},
                  process < 2 ? "gpus 4; fault cuIpcOpenMemHandle 0 201; leaks fatal" : "gpus 4; leaks fatal");
    job.finish();
    for (const int first : {0, 2}) {
        CHECK(contains(job[first].error(), "device memory is mapped by file descriptors: rank ") == (first == 0));
        CHECK_FALSE(contains(job[first].error(), "goes through the host's"));
    }
}

TEST_CASE("a rank that leaves or ends right after its calls has sent all their data", "[hosts]") {
    for (const char* algo : {"ring", "double_binary_tree"})
        for (const std::string count : {"100", "200003"})
            for (const Shape shape : {Shape{2, 1, 1}, Shape{2, 2, 1}, Shape{2, 1, 2}}) {
                INFO(shape.text() << ", " << algo << ", " << count);
                Job job(shape.ranks(), "gpus 4", 4, shape.each);
                job.processes_a_host = shape.processes;
                job.algo = algo;
                job.start_all({"init", "reduce 10", "leave " + count});
                job.finish();
                Job ending(shape.ranks(), "gpus 4", 4, shape.each);
                ending.processes_a_host = shape.processes;
                ending.algo = algo;
                for (int process = 0; process < shape.hosts * shape.processes; ++process)
                    ending.start({"init", process % 2 ? "reduce " + count : "vanish " + count});
                ending.finish();
                for (int process = 0; process < shape.hosts * shape.processes; ++process)
                    CHECK_FALSE(contains(ending[process].output(), "reduce "));
            }
}

TEST_CASE("a process of another host that dies while kernels wait for it is named, and the others go on without it",
          "[hosts]") {
    for (const Shape shape : {Shape{2, 1, 1}, Shape{3, 1, 1}, Shape{2, 2, 1}})
        for (const char* count : {"launch 100", "launch 1000000"}) {
            INFO(shape.text() << ", " << count);
            const int ranks = shape.ranks(), victim = ranks - 1;
            Job job(ranks, "gpus 4; leaks fatal", 4);
            job.processes_a_host = shape.processes;
            const std::string next = new_id();
            for (int rank = 0; rank < victim; ++rank)
                job.start({"init", "reduce 10", count, "say kernel has ended", "error", "destroy",
                           "id " + std::to_string(victim) + " " + std::to_string(rank) + " " + next, "init",
                           "reduce 5000", "destroy"});
            job.start({"init", "reduce 10", "say ready", "pause"});
            for (int rank = 0; rank < victim; ++rank) REQUIRE(job[rank].says("reduce 0"));
            REQUIRE(job[victim].says("ready"));
            const std::string pid = "pid " + std::to_string(job[victim].pid());
            job[victim].kill(SIGKILL);
            job[victim].wait();
            for (int rank = 0; rank < victim; ++rank) {
                job.finish(rank);
                INFO(job[rank].output());
                CHECK(contains(job[rank].output(), "error 6"));
                CHECK((contains(job[rank].output(), pid) || contains(job[rank].output(), "is lost")));
            }
        }
}

TEST_CASE("mismatched calls of different hosts are reported on all ranks", "[hosts]") {
    for (const char* algo : {"", "ring", "recursive_doubling"})
        for (const auto& [one, other] : {std::pair("1000", "1001"), std::pair("10", "500000"), std::pair("0", "10")}) {
            INFO(algo << ": " << one << " and " << other);
            Job job(3, "gpus 4; leaks fatal", 4);
            job.processes_a_host = 1;
            job.algo = algo;
            for (int rank = 0; rank < 3; ++rank)
                job.start({"init", std::string("launch ") + (rank == 1 ? other : one), "error", "destroy"});
            job.finish();
            for (int rank = 0; rank < 3; ++rank) {
                INFO(job[rank].output());
                CHECK(contains(job[rank].output(), "error 9 the communicator is dead"));
                CHECK(contains(job[rank].output(), "rank 1 called all_reduce of " + std::string(other) + " uint32"));
                CHECK(contains(job[rank].output(), " called all_reduce of " + std::string(one) + " uint32"));
            }
        }
}

TEST_CASE("a rank of another host that does not come is named at the deadline", "[hosts]") {
    Job job(2, "gpus 2; leaks fatal", 2);
    job.processes_a_host = 1;
    job.variables = {"WEFT_DEBUG=NONE", "WEFT_TIMEOUT_MS=1000"};
    job.start({"init", "launch 1000", "error", "destroy"});
    job.start({"init", "error", "destroy"});
    job.finish();
    for (int rank = 0; rank < 2; ++rank) {
        INFO(job[rank].output());
        CHECK(contains(job[rank].output(), "error 8"));
        CHECK(contains(job[rank].output(), "rank 0 waited 1.0 s for rank 1 in all_reduce of 1000 uint32"));
        CHECK(contains(job[rank].output(), "has not called anything yet"));
    }
}

TEST_CASE("a rank without a device on one host is named on every host", "[hosts]") {
    Job job(4, "gpus 4; leaks fatal", 4);
    job.processes_a_host = 2;
    for (int rank = 0; rank < 4; ++rank) {
        job.variables = {"WEFT_DEBUG=NONE"};
        if (rank == 2) job.variables.push_back("WITHOUT_DEVICE=1");
        job.start({"init", "host 1000", "launch 1000", "host 1000", "destroy"});
    }
    job.finish();
    for (int rank = 0; rank < 4; ++rank) {
        INFO(job[rank].output());
        CHECK(contains(
            job[rank].output(),
            rank == 2 ? "reduce 4 stream must be NULL or one of weftStreamCreate's: this communicator has no device"
                      : "reduce 5 sendbuff is device memory, but rank 2 joined without "
                        "a device"));
        CHECK(contains(job[rank].output(), "destroy 0\n"));
    }
}

TEST_CASE("an obstacle of one host makes all hosts work on copies, with one warning", "[hosts]") {
    Job job(4, "gpus 4; leaks fatal", 4);
    job.processes_a_host = 2;
    for (int rank = 0; rank < 4; ++rank)
        job.start({"init", "host 1000", "reduce 1000", "host 1000", "destroy"},
                  rank == 3 ? "gpus 4; fault cuMemAlloc 1 2" : "gpus 4; leaks fatal");
    job.finish();
    const std::string warning = "device memory is copied to the host's and back, which is slow: rank 3: ";
    for (int rank = 0; rank < 4; ++rank) {
        INFO(job[rank].error());
        CHECK(contains(job[rank].error(), warning) == (rank == 0));
        CHECK(contains(job[rank].error(), "CUDA_ERROR_OUT_OF_MEMORY") == (rank == 0));
    }
}

}  // namespace weft::internal::test
