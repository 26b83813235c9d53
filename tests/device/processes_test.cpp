// processes_test.cpp: ranks in processes of their own, which reach each other's device memory by cuIpc, or by file descriptors.
#include <signal.h>

#include <fstream>
#include <random>

#include "tests/device/job.hpp"
#include "tests/device/ranks.hpp"
#include "tests/folder.hpp"

namespace weft::internal::test {

// Memory that is not registered is staged in several tiles.
static const std::string long_reduce = small() ? "reduce 1200000" : "reduce 3000000";

TEST_CASE("processes reduce over mapped device memory", "[processes]") {
    for (const int devices : {4, 1}) {
        Job job(small() ? 2 : 4, "gpus 4; leaks fatal", devices);
        Steps steps{"init"};
        for (const char* count : {"0", "1", "1000", "30000", "300000", small() ? "1200000" : "2500000"})
            for (const char* kind : {"reduce ", "host ", "reduce "}) steps.push_back(kind + std::string(count));
        // Memory that is not registered is staged, in several tiles.
        for (const char* count : {"0", "1", "1000", "50000", small() ? "300001" : "1100001"})
            steps.push_back("all " + std::string(count));
        steps.push_back("destroy");
        job.start_all(steps);
        job.finish();
    }
}

TEST_CASE("processes on devices at one switch use it unless the option says no, or a call of the driver fails",
          "[processes][fake]") {
    const struct {
        const char *use, *fault;
        bool switched;
    } cases[] = {{"3", "", true}, {"0", "", false}, {"1", "", false}, {"3", "; fault cuMulticastBindMem 1 802", false}};
    for (const auto& [use, fault, switched] : cases)
        for (const int each : {1, 2}) {
            if (each == 2 && !switched) continue;
            INFO(use << fault << ", " << each << " ranks of a process");
            Job job(2 * each, "", 4, each);
            const Folder folder;
            job.variables = {std::string("WEFT_GPU_MULTICAST=") + use, "WEFT_DEBUG=TRACE",
                             "WEFT_DEBUG_SUBSYS=INIT,MEM,COLL", "WEFT_DEBUG_FILE=" + (folder.path / "log").string()};
            const std::string weft_memory = "memory " + std::to_string(int(DeviceBuffer::Kind::weft));
            const Steps steps{"init", "all 1000", "reduce 1000", "all 300001", weft_memory, "window 1000", "destroy"};
            const std::string machine = "gpus 4; attribute * 132 1; leaks fatal";
            job.start(steps, machine);
            job.start(steps, machine + fault);
            job.finish();
            std::ifstream file(folder.path / "log");
            const std::string log(std::istreambuf_iterator<char>(file), {});
            INFO(log);
            CHECK(contains(log, "bytes lies behind the switch") == switched);
            CHECK(contains(log, "offers its memory behind the switch") == switched);
            CHECK(contains(log, "the switch reduces and hands out messages, through") == switched);
            CHECK(contains(log,
                           "the switch does not reduce and hand out messages of device memory: rank 1: CUDA could "
                           "not bind") == (*fault != 0));
        }
}

TEST_CASE("threads and processes together", "[processes]") {
    for (const char* algo : {"", "ring", "halving_doubling"})
        for (const int devices : {4, 2}) {
            if (small() && devices == 4 && *algo) continue;
            Job job(4, "gpus 4; leaks fatal", devices, 2);
            job.algo = algo;
            job.start_all(
                {"init", "reduce 100", "reduce 100000", "all 100", "all 200001", "reduce 1000000", "destroy"});
            job.finish();
        }
}

TEST_CASE("processes pass messages from rank to rank over mapped device memory", "[processes]") {
    for (const char* algo : {"ring", "double_binary_tree", "halving_doubling", "recursive_doubling", "^two_shot"}) {
        INFO(algo);
        Job job(small() ? 2 : 4, "gpus 4; leaks fatal", 4);
        job.algo = algo;
        Steps steps{"init"};
        for (const char* count : {"0", "1", "1000", "30000", "700000", "3"})
            for (const char* kind : {"reduce ", "host ", "reduce "}) steps.push_back(kind + std::string(count));
        for (const char* count : {"1", "1000", "70000"}) steps.push_back("all " + std::string(count));
        steps.push_back("destroy");
        job.start_all(steps);
        job.finish();
    }
}

TEST_CASE("processes send each other messages over mapped device memory, and lend registered buffers", "[processes]") {
    for (const char* machine : {"gpus 4; leaks fatal", "gpus 2; p2p 0 1 0; p2p 1 0 0; leaks fatal"}) {
        Job job(small() ? 2 : 4, machine, 2, small() ? 1 : 2);
        job.start_all({"init", "messages 1000", "messages 400000", "reduce 1000", "messages 77", "destroy"});
        job.finish();
    }
}

TEST_CASE("processes put into windows of each other's device memory", "[processes]") {
    for (const int each : {1, 2})
        for (const int devices : {4, 1}) {
            Job job(small() ? 2 : 4, "gpus 4; leaks fatal", devices, small() ? 1 : each);
            job.start_all({"init", "window 1", "window 300000", "reduce 1000", "window 0", "window 4097", "destroy"});
            job.finish();
        }
}

TEST_CASE("processes that share a device without MPS run their kernels in turns", "[processes][fake]") {
    const Folder folder;
    const std::string turns = folder.path / "turns";
    Job job(3, "gpus 1; slices " + turns + " 1; leaks fatal", 1);
    job.start_all({"init", "reduce 1000", "reduce 300000", "messages 1000", "all 100", "destroy"});
    job.finish();
    uint64_t passed = 0;
    std::ifstream(turns).read(reinterpret_cast<char*>(&passed), sizeof passed);
    CHECK(passed > 3);
}

TEST_CASE("a process that dies while others wait for its signals is named, and its window ends", "[processes]") {
    Job job(3, "gpus 3; leaks fatal", 3);
    for (int process = 0; process < 3; ++process) job.start({"init", "wait_signal", "destroy"});
    REQUIRE(job[2].says("registered"));
    const std::string victim = "rank 2 (pid " + std::to_string(job[2].pid()) + ") died";
    job[2].kill(SIGKILL);
    job[2].wait();
    for (const int process : {0, 1}) {
        job.finish(process);
        CHECK(contains(job[process].output(), "error 6"));
        CHECK(contains(job[process].output(), victim));
        CHECK(contains(job[process].output(), "end of window 0"));
    }
}

TEST_CASE("a process that dies while others wait for its messages is named", "[processes]") {
    Job job(2, "gpus 2; leaks fatal", 2);
    job.start({"init", "receive 100", "error", "destroy"});
    job.start({"init", "say ready", "pause"});
    REQUIRE(job[1].says("ready"));
    const std::string victim = "rank 1 (pid " + std::to_string(job[1].pid()) + ") died, and kernels of rank 0";
    job[1].kill(SIGKILL);
    job[1].wait();
    job.finish(0);
    CHECK(contains(job[0].output(), "error 6"));
    CHECK(contains(job[0].output(), victim));
}

TEST_CASE("a process that is silent for long while ranks join by descriptors is waited for", "[processes][fake]") {
    const std::string machine = "gpus 2; leaks fatal; fault cuIpcGetMemHandle 0 801";
    Job job(2, machine, 2);
    job.variables = {"WEFT_DEBUG=INFO"};
    const Steps steps{"init", "reduce 1000", "destroy"};
    // Offers when the other has done so, and has been stopped: else all ends well, too.
    job.start(steps, machine + "; fault cuMemExportToShareableHandle 1 sleep 1000");
    job.start(steps);
    CHECK(eventually([&] { return contains(job[1].error(), "no device memory in common"); }));
    usleep(300'000);
    job[1].kill(SIGSTOP);
    usleep(3'500'000);
    job[1].kill(SIGCONT);
    job.finish();
    INFO(job[0].error() << job[1].error());
    CHECK(contains(job[0].error(), "device memory is mapped by file descriptors"));
}

TEST_CASE("a process that is stopped while kernels wait for it is reported as stopped at the deadline", "[processes]") {
    const Folder folder;
    const std::string go = folder.path / "go";
    Job job(2, "gpus 2", 2);
    job.variables = {"WEFT_TIMEOUT_MS=500"};
    job.start({"init", "reduce 10", "await " + go, "launch 100", "error", "exit"});
    job.start({"init", "reduce 10", "say ready", "pause"});
    REQUIRE(job[1].says("ready"));
    job[1].kill(SIGSTOP);
    std::ofstream(go).flush();
    job.finish(0);
    job[1].kill(SIGKILL);
    job[1].wait();
    CHECK(contains(job[0].output(), ") is stopped (SIGSTOP or a debugger); it last called operation "));
}

TEST_CASE("a process that dies while kernels wait for it is named, and the others go on without it", "[processes]") {
    for (const std::string count : {"launch 100", "launch 100000", "launch 1000000", "launch 200000 by ring"}) {
        Job job(3, "gpus 4; leaks fatal", 3);
        if (contains(count, "by ring")) job.algo = "ring";
        const std::string next = new_id();
        for (int rank = 0; rank < 2; ++rank)
            job.start({"init", "reduce 10", count, "say kernel has ended", "error", "destroy",
                       "id 2 " + std::to_string(rank) + " " + next, "init", "reduce 5000", "destroy"});
        job.start({"init", "reduce 10", "say ready", "pause"});
        for (int rank = 0; rank < 2; ++rank) REQUIRE(job[rank].says("reduce 0"));
        REQUIRE(job[2].says("ready"));
        const std::string victim = "rank 2 (pid " + std::to_string(job[2].pid()) + ") died";
        job[2].kill(SIGKILL);
        job[2].wait();
        for (int rank = 0; rank < 2; ++rank) {
            job.finish(rank);
            CHECK(contains(job[rank].output(), "error 6"));
            CHECK(contains(job[rank].output(), victim));
        }
    }
}

TEST_CASE("a process whose kernel runs when it dies is named, and the others go on without it", "[processes]") {
    for (const std::string count : {"100", "300000"}) {
        const Folder folder;
        const std::string go = folder.path / "go", next = new_id();
        Job job(3, "gpus 3; leaks fatal", 3);
        for (int rank = 0; rank < 2; ++rank)
            job.start({"init", "reduce 10", "await " + go, "launch " + count, "launch " + count, "error", "destroy",
                       "id 2 " + std::to_string(rank) + " " + next, "init", "reduce 5000", "destroy"});
        // Its kernel waits for the others'. It may have done its part, so the others' second call cannot end.
        job.start({"init", "reduce 10", "run " + count});
        REQUIRE(job[2].says("a kernel runs"));
        const std::string victim = "rank 2 (pid " + std::to_string(job[2].pid()) + ") died";
        job[2].kill(SIGKILL);
        job[2].wait();
        std::ofstream(go).flush();
        for (int rank = 0; rank < 2; ++rank) {
            job.finish(rank);
            CHECK(contains(job[rank].output(), "error 6"));
            CHECK(contains(job[rank].output(), victim));
        }
    }
}

TEST_CASE("unmapping memory of a communicator that has ended blocks no other process", "[processes][fake]") {
    Job job(2, "gpus 2; leaks fatal", 2);
    job.start({"init", "reduce 10", "leave_stuck", "destroy"});
    job.start({"init", "reduce 10", "error", "destroy"});
    job.finish();
}

TEST_CASE("a GPU that several processes share is reported, with or without MPS", "[processes][fake]") {
    for (const bool mps : {false, true})
        for (const int devices : {1, 2}) {
            Job job(4, std::string("gpus 2; leaks fatal") + (mps ? "; attribute * 133 1" : ""), devices, 2);
            job.variables = {"WEFT_DEBUG=INFO"};
            job.start_all({"init", "reduce 1000", "destroy"});
            job.finish();
            const char* const sentence = mps ? "of other processes, whose kernels run at once by MPS"
                                             : "of other processes, without MPS: it runs one process at a time";
            INFO(job[0].error());
            CHECK(contains(job[0].error(), "shares device 0 with " +
                                               std::string(devices == 1 ? "ranks 2 to 3" : "rank 2") + " " + sentence));
            const size_t told = job[0].error().find(sentence);
            CHECK((job[0].error().find(sentence, told + 1) == std::string::npos) == (devices == 1));
            CHECK_FALSE(contains(job[1].error(), sentence));
        }
    Job apart(2, "gpus 2; leaks fatal", 2);
    apart.start_all({"init", "reduce 1000", "destroy"});
    apart.finish();
    CHECK_FALSE(contains(apart[0].error(), "shares"));
}

TEST_CASE("a process that dies while the devices join is named", "[processes][fake]") {
    Job job(2, "gpus 2; leaks fatal", 2);
    job.start({"init"});
    // The other has joined, and sleeps before it offers its memory.
    job.start({"init"}, "gpus 2; fault cuMemAlloc 1 sleep 600000");
    REQUIRE(eventually([&] { return contains(job[1].error(), "cuMemAlloc sleeps"); }));
    job[1].kill(SIGKILL);
    job[1].wait();
    job.finish(0);
    // A rank that polls late sees one that died before: "were meeting".
    CHECK(contains(job[0].output(), "init 6 call 0 of the group, weftCommInitRank: rank 1 (pid " +
                                        std::to_string(job[1].pid()) + ") died while the ranks were"));
}

TEST_CASE("a process that dies in any call of the driver while the devices join is named, unless they have",
          "[processes][fake]") {
    std::mt19937 random(seed());
    INFO("seed " << seed());
    for (const char* function :
         {"cuMemAlloc", "cuMemHostAlloc", "cuMemHostRegister", "cuMemsetD8Async", "cuIpcGetMemHandle",
          "cuIpcOpenMemHandle", "cuLaunchKernelEx", "cuMemcpyAsync", "cuStreamSynchronize"}) {
        if (small() && random() % 3 != 0) continue;
        const std::string fault = std::string("fault ") + function + " " + std::to_string(1 + random() % 3) + " dies";
        Job job(3, "gpus 3", 3);
        job.start({"init"});
        job.start({"init"});
        job.start({"init", "pause"}, "gpus 3; " + fault);
        // Where the function is not called so often, it pauses.
        (void)job[2].says("init ");
        const pid_t pid = job[2].pid();
        job[2].kill(SIGKILL);
        job[2].wait();
        for (const int rank : {0, 1}) {
            job.finish(rank);
            INFO(fault << '\n' << job[rank].output());
            CHECK((contains(job[rank].output(), "rank 2 (pid " + std::to_string(pid) + ") died while the ranks were") ||
                   contains(job[rank].output(), "init 0")));
        }
    }
}

TEST_CASE("a process that dies in a call of the driver, in the midst of one of Weft's, is named", "[processes][fake]") {
    for (const char* function : {"cuMemcpy", "cuLaunchKernelEx"})
        for (const char* algo : {"", "ring"}) {
            Job job(3, "gpus 3; leaks fatal", 3);
            job.algo = algo;
            const std::string next = new_id(), fault = std::string("fault ") + function + " 1 dies";
            for (int rank = 0; rank < 2; ++rank)
                job.start({"init", "reduce 10", "launch 100000", "error", "destroy",
                           "id 2 " + std::to_string(rank) + " " + next, "init", "reduce 5000", "destroy"});
            job.start({"init", "reduce 10", fault, "launch 100000", "say lives"});
            job[2].wait();
            CHECK_FALSE(contains(job[2].output(), "lives"));
            const std::string victim = "rank 2 (pid " + std::to_string(job[2].pid()) + ") died";
            for (int rank = 0; rank < 2; ++rank) {
                job.finish(rank);
                INFO(fault << '\n' << job[rank].output());
                CHECK(contains(job[rank].output(), "error 6"));
                CHECK(contains(job[rank].output(), victim));
            }
        }
}

TEST_CASE("mismatched calls of different processes are errors of both", "[processes]") {
    Job job(2, "gpus 2; leaks fatal", 2);
    job.algo = GENERATE(as<std::string>(), "", "ring");
    job.start({"init", "launch 1000", "error", "destroy"});
    job.start({"init", "launch 1001", "error", "destroy"});
    job.finish();
    for (int rank = 0; rank < 2; ++rank)
        CHECK(
            contains(job[rank].output(),
                     "error 9 the communicator is dead, destroy it and make a new one; it died of: rank 0 called "
                     "all_reduce of 1000 uint32, sum, in device memory, rank 1 called all_reduce of 1001 uint32, sum"));
}

TEST_CASE("where a driver is too old for the device code all ranks work on copies, and that is said once a process",
          "[processes][fake]") {
    const struct {
        const char *machine, *why;
    } cases[] = {
        {"gpus 2; version 12080; leaks fatal", "the driver supports CUDA 12.8, and the code was built with CUDA "},
        {"gpus 2; version 11080; leaks fatal", "for CUDA 11.8 has no cuLibraryLoadData"},
    };
    const std::string said_once = "no kernels of Weft's run on device";
    for (const auto& each : cases)
        for (const int ranks_each : {1, 2}) {
            Job job(4, each.machine, 2, ranks_each);
            const std::string next = new_id();
            for (int first = 0; first < 4; first += ranks_each)
                job.start({"init", "host 1000", "reduce 0", "reduce 1000", "all 1000", "all 100001", "reduce 300000",
                           "messages 5000", "messages 400000", "host 1000", "destroy",
                           "id 4 " + std::to_string(first) + " " + next, "init", "reduce 10", "host 10", "destroy"});
            job.finish();
            for (int process = 0; process < 4 / ranks_each; ++process) {
                const std::string logged = job[process].error();
                INFO(job[process].output() << logged);
                const size_t first = logged.find(said_once);
                REQUIRE(first != std::string::npos);
                CHECK(contains(logged, each.why));
                // Once, on however many devices.
                CHECK(logged.find(said_once, first + 1) == std::string::npos);
            }
        }
}

TEST_CASE("a device that cannot run kernels is reported by its name, and its memory is copied", "[processes][fake]") {
    // CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY
    Job job(2, "gpus 2; attribute 1 19 0; leaks fatal", 2);
    job.start_all({"init", "reduce 1000", "all 1000", "destroy"});
    job.finish();
    CHECK_FALSE(contains(job[0].error(), "no kernels of Weft's run on device"));
    CHECK(contains(job[1].error(),
                   "is copied to the host's and back, which is slow: device 1 has no words in host memory"));
}

TEST_CASE("one rank whose driver is too old makes all ranks work on copies", "[processes][fake]") {
    Job job(3, "gpus 3; leaks fatal", 3);
    job.variables = {"WEFT_DEBUG=INFO"};
    const Steps steps{"init", "reduce 1000", "all 50000", "captured 100", "no_window 100", "reduce 10", "destroy"};
    job.start(steps);
    job.start(steps, "gpus 3; version 12080; leaks fatal");
    job.start(steps);
    job.finish();
    CHECK(
        contains(job[0].error(), "device memory is copied to the host's and back: no kernels of Weft's run on rank 1"));
    for (const int process : {0, 1, 2}) {
        INFO(job[process].output());
        CHECK(contains(job[process].output(), "captured 5 the stream is captured"));
        CHECK(contains(job[process].output(), "window 5 windows of device memory"));
        CHECK(contains(job[process].output(), "no kernels of Weft's run on some rank's device"));
        CHECK(contains(job[process].error(), "no kernels of Weft's run on device") == (process == 1));
    }
}

TEST_CASE("a process that dies while others wait for it with copies of device memory is named", "[processes][fake]") {
    Job job(2, "gpus 2; version 12080; leaks fatal", 2);
    job.start({"init", "reduce 10", "launch 1000", "destroy"});
    job.start({"init", "reduce 10", "say ready", "pause"});
    REQUIRE(job[1].says("ready"));
    const std::string victim = "rank 1 (pid " + std::to_string(job[1].pid()) + ") died";
    job[1].kill(SIGKILL);
    job[1].wait();
    job.finish(0);
    CHECK(contains(job[0].output(), victim));
}

TEST_CASE("WEFT_GPU_BLOCKS, _THREADS and _STAGING_BYTES of rank 0 limit the kernels of all ranks", "[processes]") {
    Job job(2, "gpus 2; leaks fatal", 2);
    job.variables = {"WEFT_DEBUG=INFO", "WEFT_GPU_BLOCKS=3", "WEFT_GPU_THREADS=129", "WEFT_GPU_STAGING_BYTES=131072"};
    job.start({"init", "reduce 300000", "all 1000", "messages 400000", "window 300000", "destroy"});
    job.variables = {};
    job.start({"init", "reduce 300000", "all 1000", "messages 400000", "window 300000", "destroy"});
    job.finish();
    const std::string& log = job[0].error();
    INFO(log);
    CHECK(contains(log, "3 blocks of a kernel at most"));
    CHECK(contains(log, "peer_two_shot, 3 blocks of 128 threads, in tiles of 65536 bytes unless in place"));
    CHECK(contains(log, "WEFT_GPU_THREADS is 129, and kernels have whole warps: 128 threads"));
    CHECK_FALSE(contains(log, "of 512 threads"));
}

TEST_CASE("a process may end without destroying its communicator", "[processes]") {
    Job job(2, "gpus 2", 2);
    job.start({"init", "reduce 1000", "exit"});
    job.start({"init", "reduce 1000", "destroy"});
    job.finish();
}

TEST_CASE("memory that some device does not reach is replaced by host memory, and the log gives ranks and reason",
          "[processes][fake]") {
    struct {
        const char *machine, *why, *whose;
    } const cases[] = {
        {"gpus 3; p2p 0 1 0; p2p 1 0 0; leaks fatal", "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED (217)", " of ranks 0 to 1"},
        {"gpus 3; p2p 1 2 lies; p2p 2 1 lies; leaks fatal", "did not arrive", " of ranks 1 to 2"},
        {"gpus 3; p2p 0 1 0; leaks fatal", "rank 0: cannot reach rank 1's memory: ", " of rank 1"},
        {"gpus 3; p2p 0 1 0; p2p 1 0 0; p2p 1 2 0; p2p 2 1 0; leaks fatal", "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED (217)",
         ""},
        // Found only after the other ranks' memory has moved.
        {"gpus 3; p2p 0 1 0; p2p 1 2 lies; p2p 2 1 lies; leaks fatal", "did not arrive", ""},
        {"gpus 3; fault cuIpcOpenMemHandle 0 201; fault cuMemImportFromShareableHandle 0 101; leaks fatal",
         "CUDA_ERROR_INVALID_CONTEXT (201)", ""},
        {"gpus 3; fault cuIpcOpenMemHandle 0 201; fault cuMemCreate 0 801; leaks fatal",
         "by file descriptors: rank 0: CUDA could not allocate ", ""}};
    const std::string algo = GENERATE(as<std::string>(), "", "ring", "double_binary_tree");
    for (const auto& each : cases)
        for (const int together : {1, 3}) {
            if (small() && !algo.empty() && (together == 3 || &each != cases)) continue;
            // Only separate processes see these faults.
            if (together == 3 && (!contains(each.machine, "p2p 0 1 0") || contains(each.machine, "lies"))) continue;
            Job job(3, each.machine, 3, together);
            job.variables = {"WEFT_DEBUG=INFO"};
            job.algo = algo;
            job.start_all({"init", "reduce 1000", "reduce 100000", long_reduce, "all 300", "all 300001", "host 1000",
                           "reduce 0", "destroy"});
            job.finish();
            INFO(each.machine << '\n' << job[0].output() << job[0].error());
            CHECK(contains(job[0].output(), "init 0\ndestroy 0\n"));
            const std::string whose = each.whose;
            CHECK(contains(job[0].error(), "device memory" + whose + " goes through the host's, which is slow: rank "));
            CHECK(contains(job[0].error(), each.why));
            CHECK(contains(job[0].error(), whose.empty()
                                               ? ", through host memory\n"
                                               : ", through host memory to and from" + whose.substr(3) + '\n'));
        }
}

TEST_CASE("where cuIpc is refused, to all or to one, device memory is mapped by file descriptors",
          "[processes][fake]") {
    const struct {
        const char *fault, *why;
    } cases[] = {{"fault cuIpcOpenMemHandle 0 201; ", "CUDA_ERROR_INVALID_CONTEXT (201)"},
                 {"fault cuIpcGetMemHandle 0 801; ", "CUDA does not export it to other processes"}};
    for (const auto& each : cases)
        for (const int together : {1, 2})
            for (const bool all : {true, false}) {
                if (small() && all == (together == 2)) continue;
                const std::string machine = "gpus 3; leaks fatal", refused = each.fault + machine;
                Job job(4, machine, 3, together);
                job.variables = {"WEFT_DEBUG=INFO"};
                const std::string next = new_id();
                for (int first = 0; first < 4; first += together) {
                    // A second communicator takes over the memory of the first.
                    const Steps steps{"init",      "reduce 1000", "reduce 100000",
                                      long_reduce, "all 300",     "messages 400000",
                                      "host 1000", "destroy",     "id 4 " + std::to_string(first) + " " + next,
                                      "init",      "reduce 1000", "all 300001",
                                      "destroy"};
                    job.start(steps, all || first == 2 ? refused : machine);
                }
                job.finish();
                const std::string& log = job[0].error();
                INFO(refused << '\n' << log);
                const std::string mapped = "device memory is mapped by file descriptors: rank ";
                const size_t first = log.find(mapped);
                REQUIRE(first != std::string::npos);
                CHECK(log.find(mapped, first + 1) != std::string::npos);
                CHECK(contains(log, each.why));
                CHECK_FALSE(contains(log, "goes through the host's"));
            }
}

TEST_CASE("WEFT_GPU_PATH says where ranks begin on a healthy machine, rank 0's for all", "[processes]") {
    const struct {
        const char *path, *said;
    } cases[] = {{"descriptors",
                  "device memory is mapped by file descriptors: rank 0: cannot reach rank 1's memory: WEFT_GPU_PATH "
                  "is descriptors"},
                 {"host",
                  "device memory goes through the host's, which is slow: rank 0: cannot reach rank 1's memory: "
                  "WEFT_GPU_PATH is host"},
                 {"copies", "device memory is copied to the host's and back, which is slow: WEFT_GPU_PATH is copies"},
                 {"", "serves memory of device 0"}};
    for (const auto& each : cases)
        for (const int together : {1, 3}) {
            // Ranks of one process reach each other by pointers.
            if (together == 3 && each.path == std::string("descriptors")) continue;
            Job job(3, "gpus 3; leaks fatal", 3, together);
            const Steps steps{"init",       "reduce 1000", "reduce 100000",   long_reduce,
                              "all 300001", "host 10",     "messages 400000", "destroy"};
            for (int first = 0; first < 3; first += together) {
                job.variables = {"WEFT_DEBUG=INFO",
                                 std::string("WEFT_GPU_PATH=") + (first == 0 ? each.path : "copies")};
                job.start(steps);
            }
            job.finish();
            INFO(each.path << '\n' << job[0].output() << job[0].error());
            CHECK(contains(job[0].error(), each.said));
            for (const auto& other : cases)
                if (&other != &each && other.path[0] != 0) CHECK_FALSE(contains(job[0].error(), other.said));
        }
}

TEST_CASE("where the host's memory cannot be shared either, calls work on copies, and a warning has both reasons",
          "[processes][fake]") {
    // The first pinned are the words of the communicator.
    Job job(2, "gpus 2; p2p 0 1 0; p2p 1 0 0; fault cuMemHostRegister 2 801; leaks fatal", 2);
    job.start_all({"init", "host 1000", "reduce 1000", "host 1000", "destroy"});
    job.finish();
    for (int rank = 0; rank < 2; ++rank) {
        INFO(job[rank].error());
        for (const char* part : {"device memory is copied to the host's and back, which is slow: rank ",
                                 "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED (217)", "and through host memory: rank 0",
                                 "CUDA_ERROR_NOT_SUPPORTED (801)"})
            CHECK(contains(job[rank].error(), part) == (rank == 0));
    }
}

}  // namespace weft::internal::test
