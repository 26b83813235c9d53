// registered_test.cpp: buffers that ranks in processes of their own have registered: where they are used in place, where not
// and why.
#include <fstream>
#include <thread>

#include "tests/device/job.hpp"
#include "tests/device/ranks.hpp"
#include "tests/folder.hpp"

namespace weft::internal::test {

TEST_CASE("registered buffers are reduced where they lie, and staged when they are not registered any more",
          "[processes]") {
    for (const int each : {1, 2})
        for (const int devices : {4, 2}) {
            Job job(4, "gpus 4; leaks fatal", devices, each);
            const Folder folder;
            job.variables = {"WEFT_DEBUG=TRACE", "WEFT_DEBUG_SUBSYS=COLL",
                             "WEFT_DEBUG_FILE=" + (folder.path / "%p").string()};
            job.start_all({"init", "registered 300000", "reduce 300000", "registered 150001", "destroy"});
            job.finish();
        }
}

namespace {

// All that the ranks have logged.
std::string logged(const Folder& folder) {
    std::string all;
    for (const auto& file : std::filesystem::directory_iterator(folder.path)) {
        std::ifstream stream(file.path());
        all.append(std::istreambuf_iterator<char>(stream), {});
    }
    return all;
}

}  // namespace

TEST_CASE("registered buffers of processes come behind the switch, and leave it", "[processes][fake]") {
    for (const int each : {1, 2}) {
        Job job(4, "gpus 4; attribute * 132 1; leaks fatal", 4, each);
        const Folder folder;
        job.variables = {"WEFT_GPU_MULTICAST=3", "WEFT_DEBUG=TRACE", "WEFT_DEBUG_SUBSYS=COLL,MEM",
                         "WEFT_DEBUG_FILE=" + (folder.path / "%p").string()};
        job.start_all({"init", "memory " + std::to_string(int(DeviceBuffer::Kind::weft)), "registered 1000",
                       "registered 300000", "reduce 1000", "destroy"});
        job.finish();
        const std::string log = logged(folder);
        CHECK(contains(log, "registered buffer 4 of"));
        CHECK(contains(log, "offers its memory behind the switch"));
    }
}

TEST_CASE("graphs put the buffers of processes behind the switch, as long as they live", "[processes][fake]") {
    using Kind = DeviceBuffer::Kind;
    const auto memory = [](Kind kind) { return "memory " + std::to_string(int(kind)); };
    const struct {
        int each;
        Kind of_first;
        bool registers, in_place;
    } cases[] = {{1, Kind::weft, true, true},   {2, Kind::weft, true, true},   {4, Kind::weft, true, true},
                 {1, Kind::plain, true, false}, {2, Kind::plain, true, false}, {2, Kind::weft, false, false}};
    for (const auto& [each, of_first, registers, in_place] : cases) {
        INFO(each << " ranks of a process, " << int(of_first) << ", " << registers);
        Job job(4, "gpus 4; attribute * 132 1; leaks fatal", 4, each);
        const Folder folder;
        job.variables = {"WEFT_GPU_MULTICAST=3", "WEFT_DEBUG=TRACE", "WEFT_DEBUG_SUBSYS=COLL,MEM",
                         "WEFT_GPU_GRAPH_REGISTER=" + std::to_string(registers),
                         "WEFT_DEBUG_FILE=" + (folder.path / "%p").string()};
        const std::string use = in_place ? "switched_graphs 30000" : "staged_graphs 30000";
        job.start({"init", memory(of_first), use, "destroy"});
        job.start_all({"init", memory(Kind::weft), use, "destroy"});
        job.finish();
        CHECK(contains(job[0].output(), "graphs"));
        CHECK(contains(logged(folder), "offers its memory behind the switch") == in_place);
    }
}

TEST_CASE("copy engines gather from registered buffers of all ranks, and kernels if some are not registered",
          "[processes][fake]") {
    for (const auto& [each, kind] : {std::pair(1, DeviceBuffer::Kind::plain), {2, DeviceBuffer::Kind::weft}}) {
        Job job(4, "gpus 4; leaks fatal", 4, each);
        const Folder folder;
        job.variables = {"WEFT_DEBUG=INFO", "WEFT_DEBUG_SUBSYS=COLL",
                         "WEFT_DEBUG_FILE=" + (folder.path / "%p").string()};
        job.start_all({"init", "memory " + std::to_string(int(kind)), "copies 30001", "destroy"});
        job.finish();
        CHECK(contains(job[0].output(), "copied"));
        CHECK(contains(logged(folder),
                       "kernels move the data although blockPolicy is zero: rank 0 has a send buffer that is not"));
    }
}

TEST_CASE("copy engines gather from windows, outside captures", "[processes][fake]") {
    for (const int each : {1, 2}) {
        Job job(4, "gpus 4; leaks fatal", 4, each);
        job.variables.push_back("WEFT_GPU_GRAPH_REGISTER=0");
        job.start_all({"init", "copies_in_windows 30001", "destroy"});
        job.finish();
        CHECK(contains(job[0].output(), "copied"));
    }
}

TEST_CASE("a process that dies while streams wait for it without kernels is named, and the streams go on",
          "[processes][fake]") {
    Job job(3, "gpus 3; leaks fatal", 3);
    job.start_all({"init", "copies_late", "destroy"});
    for (int process = 0; process < 3; ++process) REQUIRE(job[process].says("enqueued"));
    const std::string victim = "rank 2 (pid " + std::to_string(job[2].pid()) + ") died";
    job[2].kill(SIGKILL);
    job[2].wait();
    for (const int process : {0, 1}) {
        job.finish(process);
        CHECK(contains(job[process].output(), victim));
        CHECK(contains(job[process].output(), "released"));
    }
}

TEST_CASE("a rank may register hundreds of allocations", "[processes]") {
    for (const auto kind : {DeviceBuffer::Kind::plain, DeviceBuffer::Kind::weft}) {
        Job job(2, "gpus 2; leaks fatal", 2);
        const Folder folder;
        job.variables = {"WEFT_DEBUG=TRACE", "WEFT_DEBUG_SUBSYS=COLL",
                         "WEFT_DEBUG_FILE=" + (folder.path / "%p").string()};
        job.start_all({"init", "memory " + std::to_string(int(kind)), "crowd 150", "registered 300000", "destroy"});
        job.finish();
    }
}

TEST_CASE("buffers of captured calls are registered as long as the graph lives", "[processes]") {
    using Kind = DeviceBuffer::Kind;
    for (const auto& [kind, each] : {std::pair(Kind::plain, 1), {Kind::plain, 2}, {Kind::pieces, 1}}) {
        INFO(int(kind) << ", " << each << " ranks of a process");
        Job job(2 * each, "gpus 4; leaks fatal", kind == Kind::pieces ? 2 : 2 * each, each);
        const Folder folder;
        job.variables = {"WEFT_DEBUG=TRACE", "WEFT_DEBUG_SUBSYS=COLL",
                         "WEFT_DEBUG_FILE=" + (folder.path / "%p").string()};
        job.start_all({"init", "memory " + std::to_string(int(kind)), "graphs 300000", "destroy"});
        job.finish();
        CHECK(contains(job[0].output(), "graphs"));
    }
}

namespace {

std::string memory_of(DeviceBuffer::Kind kind) { return "memory " + std::to_string(int(kind)); }

// Of what is offered in place, and why something is not.
std::vector<std::string> log_of_exports(const Folder& folder) {
    return {"WEFT_DEBUG=TRACE", "WEFT_DEBUG_SUBSYS=COLL,MEM", "WEFT_DEBUG_FILE=" + (folder.path / "%p").string()};
}

}  // namespace

TEST_CASE("registered virtual memory, in one piece or in several, is reduced where it lies", "[processes]") {
    using Kind = DeviceBuffer::Kind;
    for (const Kind kind : {Kind::weft, Kind::pieces})
        // Ranks of one process on devices that pieces are not opened for are another test's.
        for (const auto& [ranks, each, devices] : {std::tuple(3, 1, 4), std::tuple(4, 2, kind == Kind::weft ? 4 : 1)}) {
            INFO(int(kind) << ", " << each << " ranks of a process");
            Job job(ranks, "gpus 4; leaks fatal", devices, each);
            const Folder folder;
            job.variables = log_of_exports(folder);
            // The second one's buffers have three pieces.
            job.start_all({"init", memory_of(kind), "registered 300000", "reduce 300000", "registered 1200001",
                           "messages 300000", "destroy"});
            job.finish();
            CHECK_FALSE(contains(logged(folder), "cannot map"));
        }
}

TEST_CASE("ranks of one process use memory of weftMemAlloc in place, and pieces only where they are opened",
          "[processes][fake]") {
    using Kind = DeviceBuffer::Kind;
    const struct {
        Kind kind;
        int devices;
        const char* step;
        bool refused;
    } cases[] = {{Kind::weft, 2, "in_place 300000", false},
                 {Kind::pieces, 1, "registered 300000", false},
                 {Kind::pieces, 2, "staged 300000", true}};
    for (const auto& each : cases) {
        Job job(2, "gpus 2; leaks fatal", each.devices, 2);
        const Folder folder;
        job.variables = log_of_exports(folder);
        job.start_all({"init", memory_of(each.kind), each.step, "destroy"});
        job.finish();
        INFO(logged(folder));
        CHECK_FALSE(contains(job[0].output(), "offered 1"));
        CHECK(contains(logged(folder), "cuMemSetAccess has not opened this VMM memory for device 1 of rank 1") ==
              each.refused);
    }
}

TEST_CASE("a buffer that one rank cannot export or another cannot map is staged by all, and the log says why",
          "[processes][fake]") {
    using Kind = DeviceBuffer::Kind;
    const struct {
        Kind of_first;
        const char *machine_of_second, *why;
    } cases[] = {
        {Kind::closed_pieces, "gpus 2; leaks fatal", "requestedHandleTypes"},
        {Kind::pool, "gpus 2; leaks fatal", "are not mapped by others: CUDA could not export"},
        {Kind::pieces, "gpus 2; leaks fatal; fault cuMemImportFromShareableHandle 0 999",
         "cannot map what rank 0 has registered, so messages are staged: CUDA could not import"},
    };
    for (const auto& each : cases) {
        Job job(2, "gpus 2; leaks fatal", 2);
        const Folder folder;
        job.variables = log_of_exports(folder);
        const std::string go = folder.path / "go";
        const auto steps = [&](Kind kind) {
            return Steps{"init", memory_of(kind), "keep 1000", "await " + go, "staged 300000", "destroy"};
        };
        job.start(steps(each.of_first));
        job.start(steps(Kind::weft), each.machine_of_second);
        CHECK(eventually([&] { return contains(logged(folder), each.why); }));
        std::ofstream(go).flush();
        job.finish();
        INFO(logged(folder));
        CHECK_FALSE(contains(job[0].output(), "offered 1"));
    }
}

TEST_CASE("a process that was late with its descriptors is asked again, and its registered memory is used in place",
          "[processes]") {
    // A window that is registered before that waits for it. Of several ranks that want something of it one asks.
    const auto [window, each] = GENERATE(std::pair(false, 1), std::pair(true, 1), std::pair(false, 2));
    Job job(2 * each, "gpus 4; leaks fatal", 2 * each, each);
    const Folder folder;
    job.variables = log_of_exports(folder);
    const std::string keep = folder.path / "keep", go = folder.path / "go",
                      memory = memory_of(DeviceBuffer::Kind::weft), use = window ? "window 1000" : "registered 300000";
    job.start({"init", memory, "await " + keep, "keep 1000", "say kept", "await " + go, use, "destroy"});
    job.start({"init", memory, "say there", "await " + go, use, "destroy"});
    const auto stop = [&](int process) {
        job[process].kill(SIGSTOP);
        REQUIRE(eventually([&] { return process_state(job[process].pid()) == 'T'; }));
    };
    REQUIRE(job[1].says("there"));
    stop(1);
    std::ofstream(keep).flush();
    REQUIRE(job[0].says("kept"));
    stop(0);
    job[1].kill(SIGCONT);
    CHECK(eventually([&] { return contains(logged(folder), "the process that owns them does not answer"); }));
    job[0].kill(SIGCONT);
    const auto mapped = [&] { return contains(logged(folder), "what rank 0 has registered is mapped now"); };
    if (!window) CHECK(eventually(mapped));
    std::ofstream(go).flush();
    job.finish();
    INFO(logged(folder));
    if (!window) CHECK(contains(job[0].output(), "registered"));
    if (each > 1) CHECK(contains(logged(folder), "its process did not answer an earlier request"));
}

TEST_CASE("a buffer of more pieces than file descriptors are passed for is staged", "[processes]") {
    Job job(2, "gpus 2; leaks fatal", 2);
    const Folder folder;
    job.variables = log_of_exports(folder);
    const size_t piece_bytes = size_t(2) << 20;
    const std::string memory = memory_of(DeviceBuffer::Kind::pieces);
    job.start({"init", memory, "declare " + std::to_string(512 * piece_bytes), "destroy"});
    job.start({"init", memory, "declare " + std::to_string(513 * piece_bytes), "destroy"});
    job.finish();
    const std::string all = logged(folder), refused = "the memory consists of more than 512 pieces";
    INFO(all);
    REQUIRE(contains(all, refused));
    CHECK_FALSE(contains(all.substr(all.find(refused) + 1), refused));
}

TEST_CASE("windows are of virtual memory, too, if it can be reached, and refused by all with the reason",
          "[processes]") {
    using Kind = DeviceBuffer::Kind;
    for (const Kind kind : {Kind::weft, Kind::pieces})
        for (const auto& [each, devices] : {std::pair(1, 4), std::pair(2, kind == Kind::weft ? 4 : 1)}) {
            Job job(4, "gpus 4; leaks fatal", devices, each);
            job.start_all({"init", memory_of(kind), "window 1", "window 1200000", "reduce 1000", "destroy"});
            job.finish();
        }
    Job job(2, "gpus 2; leaks fatal", 2);
    for (const Kind kind : {Kind::weft, Kind::closed_pieces})
        job.start({"init", memory_of(kind), "no_window 1000", "reduce 1000", "destroy"});
    job.finish();
    CHECK(contains(job[0].output(), "window 4 the memory of rank 1 cannot be in a window"));
    CHECK(contains(job[1].output(), "requestedHandleTypes"));
}

TEST_CASE("deregistering a buffer while a peer's call waits for it returns an error: try again later", "[processes]") {
    const Folder folder;
    const std::string go = folder.path / "go";
    Job job(2, "gpus 2; leaks fatal", 2);
    const Steps before{"init", "keep 200000", "reduce 200000"};
    Steps first = before, second = before;
    first.insert(first.end(), {"say launching", "launch 200000", "drop", "destroy"});
    second.insert(second.end(), {"await " + go, "drop", "launch 200000", "drop", "drop", "destroy"});
    job.start(first);
    job.start(second);
    CHECK(job[0].says("launching"));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the other case, without a wait, is right too
    std::ofstream(go).flush();
    job.finish();
    INFO(job[1].output());
    CHECK((contains(job[1].output(), "deregister 8 the buffer is still mapped by rank 0") ||
           contains(job[1].output(), "deregister 0")));
    CHECK(contains(job[1].output(), "reduce 0"));
}

TEST_CASE("registered memory is unmapped when its communicator ends", "[processes]") {
    Job job(2, "gpus 2; leaks fatal", 2);
    job.start_all({"init", "keep 200000", "reduce 200000", "destroy"});
    job.finish();
}

}  // namespace weft::internal::test
