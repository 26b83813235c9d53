// gpu_direct_test.cpp: ranks of several simulated hosts on the fake driver's devices, whose memory the fake libibverbs or
// a toy network plugin reads and writes. Both can hold writes back until they are flushed, so a missing flush is wrong data.
#include "tests/device/job.hpp"

namespace weft::internal::test {

namespace {

// CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, and ..._GPU_DIRECT_RDMA_WRITES_ORDERING (0: none, 100: owner).
const std::string gpus = "gpus 4; leaks fatal; attribute * 124 1; attribute * 118 ";
const std::string unordered = gpus + "0", ordered = gpus + "100";
const std::string verbs = std::string("WEFT_VERBS_LIBRARY=") + FAKE_IBVERBS_LIBRARY;
const std::string toy = std::string("WEFT_NCCL_NET_PLUGIN=") + TOY_NET;
const Steps short_ones{"init", "reduce 1000", "all 1001", "reduce 100001", "destroy"};
const Steps all_kinds{"init", "reduce 1000", "all 1001", "messages 100000", "reduce 300001", "destroy"};

// Each process is a host.
struct HostsJob : Job {
    HostsJob(int ranks, const std::string& machine, std::vector<std::string> environment, int each = 1)
        : Job(ranks, machine, 4, each) {
        processes_a_host = 1;
        variables = std::move(environment);
        variables.push_back("WEFT_DEBUG=INFO");
    }
    void run(int processes, const Steps& steps = short_ones) {
        start_all(steps);
        finish();
        for (int process = 0; process < processes; ++process) log += (*this)[process].error();
    }
    std::string log;
};

}  // namespace

TEST_CASE("NICs read and write the memory of GPUs, with a flush where a GPU needs one", "[gpu_direct]") {
    const auto [hosts, each, machine, nic, flushes] =
        GENERATE(table<int, int, std::string, std::string, bool>({{2, 1, unordered, "unflushed 1; hold 100", true},
                                                                  {3, 1, ordered, "hold 100; late 50", false},
                                                                  {2, 2, unordered, "unflushed 1; late 50", true}}));
    HostsJob job(hosts * each, machine, {verbs, "FAKE_IBVERBS=" + nic}, each);
    job.run(hosts, all_kinds);
    INFO(job.log);
    CHECK(contains(job.log, "sends and receives device memory directly over verbs"));
    CHECK(contains(job.log, "over verbs, with a flush") == flushes);
    CHECK_FALSE(contains(job.log, "stages"));
}

TEST_CASE("without the flush the data would be wrong", "[gpu_direct]") {
    HostsJob job(2, unordered, {verbs, "FAKE_IBVERBS=unflushed 1", "WEFT_GDR_FLUSH=0"});
    job.start_all({"init", "reduce 30000", "destroy"});
    for (int process = 0; process < 2; ++process) job[process].wait();
    CHECK((contains(job[0].output(), "wrong") || contains(job[1].output(), "wrong")));
}

TEST_CASE("a network plugin reads and writes the memory of GPUs", "[gpu_direct]") {
    HostsJob job(2, unordered, {toy});
    job.run(2, all_kinds);
    INFO(job.log);
    CHECK(contains(job.log, "sends and receives device memory directly over nccl_net, with a flush"));
}

// The toy shows the bytes of device memory only after a flush.
TEST_CASE("a network plugin's NIC that asks for flushes gets them, though the GPU needs none", "[gpu_direct]") {
    HostsJob job(2, ordered, {toy, "TOY_NET=force_flush"});
    job.run(2, all_kinds);
    INFO(job.log);
    CHECK(contains(job.log, "sends and receives device memory directly over nccl_net"));
}

TEST_CASE("if a network plugin refuses a GPU's memory, messages pass host memory, and the log says why",
          "[gpu_direct]") {
    // With the second behaviour it refuses the pinned slots, too, which both ends then copy.
    const std::string behaviours = GENERATE("refuse_device", "refuse_device,refuse_second");
    HostsJob job(2, unordered, {toy, "TOY_NET=" + behaviours});
    job.run(2, all_kinds);
    INFO(job.log);
    CHECK(contains(job.log, "are copied: the network plugin Toy cannot register") ==
          contains(behaviours, "refuse_second"));
    CHECK(contains(job.log, "stages messages to other hosts in pinned host memory: the network plugin Toy cannot"));
    CHECK(contains(job.log, "toy: the peer memory module is missing"));
}

TEST_CASE("a flush of a network plugin that fails is an error on every rank", "[gpu_direct]") {
    const auto [behaviour, reason] = GENERATE(
        table<std::string, std::string>({{"flush", "the flush was refused"}, {"flush_late", "the flush failed"}}));
    HostsJob job(2, unordered, {toy, "TOY_NET=" + behaviour});
    job.start_all({"init", "launch 300001", "error", "destroy"});
    job.finish();
    for (int rank = 0; rank < 2; ++rank) {
        INFO(job[rank].output() << job[rank].error());
        CHECK(contains(job[rank].output(), "error 6"));
        CHECK(contains(job[rank].output(), reason));
    }
}

TEST_CASE("where the NIC cannot use a GPU's memory, messages pass host memory, and the log says why", "[gpu_direct]") {
    const auto [machine, variable, nic, said] = GENERATE(table<std::string, std::string, std::string, std::string>(
        {{"gpus 4; leaks fatal", "A=b", "",
          "stages messages to other hosts in pinned host memory: the CUDA driver exports "
          "no dma-buf of device "},
         {"gpus 4; leaks fatal", "A=b", "peermem 1", "directly over verbs"},
         {ordered, "A=b", "dma_buf 95", "is the kernel module nvidia-peermem loaded?"},
         {ordered, "A=b", "dma_buf 95; peermem 1", "directly over verbs"},
         {ordered, "A=b", "fail ibv_reg_dmabuf_mr 1 12", "bytes of device memory at "},
         {ordered + "; fault cuMemGetHandleForAddressRange 0 1", "A=b", "", "as a dma-buf: CUDA_ERROR_INVALID_VALUE"},
         {ordered + "; sm 75", "A=b", "", "receives device memory directly over verbs, and stages what it sends"},
         {ordered, "WEFT_GDR_READ=0", "", "stages what it sends: WEFT_GDR_READ is 0"},
         {ordered, "NCCL_NET_GDR_READ=0", "", "stages what it sends: NCCL_NET_GDR_READ is 0"},
         {ordered, "WEFT_GDR_LEVEL=LOC", "", "in pinned host memory: WEFT_GDR_LEVEL is LOC"},
         {ordered, "NCCL_NET_GDR_LEVEL=0", "", "in pinned host memory: NCCL_NET_GDR_LEVEL is LOC"},
         {ordered, "WEFT_TRANSPORTS=tcp", "", "tcp moves host memory only"}}));
    HostsJob job(2, machine, {verbs, variable, "FAKE_IBVERBS=" + nic});
    job.run(2);
    INFO(machine << ", " << variable << ", " << nic << "\n" << job.log);
    CHECK(contains(job.log, said));
}

TEST_CASE("one rank's NIC may use its GPU's memory while the other's may not", "[gpu_direct]") {
    HostsJob job(2, ordered, {verbs});
    job.start(all_kinds);
    job.start(all_kinds, "gpus 4; leaks fatal");
    job.finish();
    CHECK(contains(job[0].error(), "directly over verbs"));
    CHECK(contains(job[1].error(), "stages messages"));
}

TEST_CASE("a request that fails on a GPU's memory is an error on every rank", "[gpu_direct]") {
    // Among them are writes, credits, and reads that flush.
    const std::string number = GENERATE("3", "8", "13");
    HostsJob job(2, unordered, {verbs, "FAKE_IBVERBS=unflushed 1; complete 12 " + number});
    job.start_all({"init", "launch 300001", "error", "destroy"});
    job.finish();
    for (int rank = 0; rank < 2; ++rank) {
        INFO(job[rank].output() << job[rank].error());
        CHECK(contains(job[rank].output(), "error 6"));
        CHECK(contains(job[rank].output(), "status 12"));
    }
}

TEST_CASE("after a rank has died the others go on with a new communicator", "[gpu_direct]") {
    HostsJob job(3, unordered, {verbs, "FAKE_IBVERBS=unflushed 1"});
    const std::string next = new_id();
    for (int rank = 0; rank < 2; ++rank)
        job.start({"init", "reduce 10", "launch 300000", "say kernel has ended", "error", "destroy",
                   "id 2 " + std::to_string(rank) + " " + next, "init", "reduce 5000", "destroy"});
    job.start({"init", "reduce 10", "say ready", "pause"});
    for (int rank = 0; rank < 2; ++rank) REQUIRE(job[rank].says("reduce 0"));
    REQUIRE(job[2].says("ready"));
    job[2].kill(SIGKILL);
    job[2].wait();
    for (int rank = 0; rank < 2; ++rank) {
        job.finish(rank);
        CHECK(contains(job[rank].output(), "error 6"));
    }
}

}  // namespace weft::internal::test
