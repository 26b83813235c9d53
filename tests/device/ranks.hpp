// ranks.hpp: ranks of one process on CUDA's devices, and the expected results of their calls on device memory.
#pragma once
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "src/base/datatype.hpp"
#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/device/program.hpp"
#include "tests/error.hpp"
#include "tests/subprocess.hpp"

namespace weft::internal::test {

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The call fails with this id, and the communicator (null: the thread) says so; optionally the ranks (tests/error.hpp).
#define CHECK_REFUSED(call, comm, ...)               \
    do {                                             \
        const weftResult_t weft_result = (call);     \
        CHECK_ERROR(last_error(comm), __VA_ARGS__);  \
        CHECK(weft_result == last_error(comm).code); \
    } while (0)

// Rank r is on device placing[r] and has a stream of its own. All of a communicator's, or a process's: those from `first`
// on, which are numbered here from 0 on.
struct Ranks {
    explicit Ranks(const std::vector<int>& placing, const weftConfig_t* config = nullptr);
    Ranks(const weftUniqueId& id, int of, int first, const std::vector<int>& placing, const weftConfig_t* config);
    Ranks(const Ranks&) = delete;
    ~Ranks();
    int count() const { return int(comms.size()); }
    // On every rank in turn, as one group.
    void group(const std::function<weftResult_t(int rank)>& call) const;
    // The same with calls that fail when they run, which may be before the last ones are enqueued.
    void failing_group(weftResult_t failure, const std::function<weftResult_t(int rank)>& call) const;
    void differing_group(const std::function<weftResult_t(int rank)>& call) const { failing_group(weftMismatch, call); }
    void finish() const {
        for (const auto& stream : streams) stream->finish();
    }
    // Every rank is healthy after its work so far.
    void check_healthy() const;
    // Until the rank has heard of a failure.
    weftResult_t await_failure(int rank) const;

    int of, first;
    std::vector<int> placing;
    std::vector<weftComm_t> comms;
    std::vector<std::unique_ptr<Stream>> streams;
};
// body(rank) on a thread for each rank; an exception fails the test with its sentence.
template <class Body>
void check_on_threads(int ranks, Body&& body) {
    std::vector<std::string> failures(static_cast<size_t>(ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
            try {
                body(rank);
            } catch (const std::exception& exception) {
                failures[size_t(rank)] = exception.what();
            }
        });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& failure : failures) CHECK(failure == "");
}

// One on each rank's device.
struct RankBuffers {
    RankBuffers(const Ranks& ranks, size_t bytes) {
        for (const int device : ranks.placing) all.push_back(std::make_unique<DeviceBuffer>(device, bytes));
    }
    void* operator[](int rank) const { return all[size_t(rank)]->data(); }
    std::vector<std::unique_ptr<DeviceBuffer>> all;
};
// A graph for each rank, of what `enqueue` enqueues.
struct Captured {
    template <class Enqueue>
    Captured(const Ranks& of, Enqueue&& enqueue) : ranks(of) {
        for (const auto& stream : ranks.streams) {
            const Current current(stream->device);
            demand(cuStreamBeginCapture(stream->handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        }
        enqueue();
        for (const auto& stream : ranks.streams) {
            const Current current(stream->device);
            CUgraph graph;
            demand(cuStreamEndCapture(stream->handle, &graph));
            demand(cuGraphInstantiateWithFlags(&graphs.emplace_back(), graph, 0));
            demand(cuGraphDestroy(graph));
        }
    }
    Captured(const Captured&) = delete;
    ~Captured() {
        for (CUgraphExec graph : graphs) cuGraphExecDestroy(graph);
    }
    void launch() const {
        for (size_t rank = 0; rank < graphs.size(); ++rank) launch(rank);
    }
    void launch(size_t rank) const {
        const Current current(ranks.streams[rank]->device);
        demand(cuGraphLaunch(graphs[rank], ranks.streams[rank]->handle));
    }
    const Ranks& ranks;
    std::vector<CUgraphExec> graphs;
};

// Whether the driver is too old for kernels, so that calls on device memory are the host's, on copies.
bool on_copies();
weftConfig_t with_algo(const char* algo);  // null: what is usual
// Ranks on devices in turn.
std::vector<int> spread(int ranks);

// One all-reduce of all ranks, on device memory and, for comparison, on host memory.
struct Question {
    weftDataType_t type = weftFloat32;
    int op = weftSum;  // weftNumOps: a pre-multiplied sum
    size_t count = 0;
    bool in_place = false;
    size_t offset = 0;  // of the buffers, in bytes
    std::string text() const;
};
// Draws inputs, lets devices and host answer, and says what differs; empty: nothing.
std::string compare(const Ranks& ranks, const Question& question, std::mt19937& random);

}  // namespace weft::internal::test
