// stream_test.cpp: the order of work in streams and events, and captures replayed as graphs.
#include "src/drivers/cuda/stream.hpp"

#include <atomic>
#include <thread>

#include "src/drivers/cuda/graph.hpp"
#include "src/drivers/cuda/graph_life.hpp"
#include "src/drivers/cuda/memory.hpp"
#include "tests/drivers/fake.hpp"
#include "tests/drivers/hex.hpp"
#include "tests/subprocess.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::cuda;

namespace {

// A stream's work stops here until it is let through.
class Gate {
  public:
    explicit Gate(const Context& context)
        : driver_(context.driver()), memory_(take(PinnedMemory::allocate(context, 64))) {
        word().store(0);
    }
    ~Gate() { open(); }
    void enqueue(CUstream stream) const {
        REQUIRE(driver_.StreamWaitValue32(stream, memory_.address(), 1, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS);
    }
    void open() { word().store(1); }

  private:
    std::atomic_ref<uint32_t> word() { return std::atomic_ref(*static_cast<uint32_t*>(memory_.data())); }
    const Driver& driver_;
    PinnedMemory memory_;
};

void write_later(const Driver& driver, CUstream stream, const PinnedMemory& memory, uint64_t value) {
    demand(driver.check(driver.StreamWriteValue64(stream, memory.address(), value, 0), "write"));
}
uint64_t read(const PinnedMemory& memory) {
    return std::atomic_ref(*static_cast<uint64_t*>(memory.data())).load(std::memory_order_acquire);
}

}  // namespace

TEST_CASE("work of a stream is done in order, and after the work that it waits for", "[stream]") {
    FakeDriver driver;
    const Context context = driver.context();
    const ContextScope scope(context);
    const Stream stream = take(Stream::create(context, Stream::Priority::highest));
    const PinnedMemory memory = take(PinnedMemory::allocate(context, 64));
    CHECK(take(stream.done()));
    Gate gate(context);
    gate.enqueue(stream.handle());
    for (uint64_t i = 1; i <= 100; ++i) write_later(*driver, stream.handle(), memory, i);
    CHECK(!take(stream.done()));
    CHECK(read(memory) == 0);
    gate.open();
    demand(stream.synchronize());
    CHECK(take(stream.done()));
    CHECK(read(memory) == 100);
}

TEST_CASE("an event carries one stream's order to another", "[stream]") {
    FakeDriver driver;
    const Context zero = driver.context(0), one = driver.context(1);
    const Stream first = take(Stream::create(zero)), second = take(Stream::create(one));
    const PinnedMemory memory = take(PinnedMemory::allocate(zero, 64));
    const Event event = take(Event::create(zero));
    CHECK(take(event.done()));
    Gate gate(zero);
    gate.enqueue(first.handle());
    write_later(*driver, first.handle(), memory, 1);
    demand(event.record(first.handle()));
    demand(second.wait_for(event));
    write_later(*driver, second.handle(), memory, 2);
    CHECK(!take(event.done()));
    CHECK(!take(second.done()));
    gate.open();
    demand(second.synchronize());
    CHECK(read(memory) == 2);
    CHECK(take(event.done()));
    demand(event.synchronize());
    CHECK(contains(event.record(second.handle()).sentence(), "is it of the stream's device?"));
}

TEST_CASE("events that were made for it measure time", "[stream]") {
    FakeDriver driver;
    const Context context = driver.context();
    const Stream stream = take(Stream::create(context));
    const Event begin = take(Event::create(context, Event::EventUse::timing)),
                end = take(Event::create(context, Event::EventUse::timing));
    demand(begin.record(stream.handle()));
    demand(end.record(stream.handle()));
    demand(end.synchronize());
    CHECK(take(end.milliseconds_since(begin)) >= 0);
    const Event plain = take(Event::create(context));
    demand(plain.record(stream.handle()));
    demand(plain.synchronize());
    CHECK(!plain.milliseconds_since(begin));
}

TEST_CASE("the legacy stream waits for blocking streams and they for it; Weft's own do not", "[stream]") {
    FakeDriver driver;
    const Context context = driver.context();
    const ContextScope scope(context);
    CUstream blocking = nullptr;
    REQUIRE(driver->StreamCreateWithPriority(&blocking, CU_STREAM_DEFAULT, 0) == CUDA_SUCCESS);
    const Stream own = take(Stream::create(context));
    const PinnedMemory memory = take(PinnedMemory::allocate(context, 64)),
                       aside = take(PinnedMemory::allocate(context, 64));
    Gate gate(context);
    gate.enqueue(blocking);
    write_later(*driver, nullptr, memory, 1);
    write_later(*driver, blocking, memory, 2);
    write_later(*driver, CU_STREAM_PER_THREAD, memory, 3);
    write_later(*driver, CU_STREAM_LEGACY, memory, 4);
    write_later(*driver, own.handle(), aside, 5);
    demand(own.synchronize());
    CHECK(read(aside) == 5);
    CHECK(read(memory) == 0);
    gate.open();
    REQUIRE(driver->StreamSynchronize(nullptr) == CUDA_SUCCESS);
    CHECK(read(memory) == 4);
    REQUIRE(driver->StreamDestroy(blocking) == CUDA_SUCCESS);
}

TEST_CASE("a user's stream has a device and a capture state", "[stream]") {
    FakeDriver driver;
    const Context zero = driver.context(0), one = driver.context(1);
    const ContextScope scope(zero);
    const Stream stream = take(Stream::create(one));
    StreamFacts facts = take(describe_stream(*driver, stream.handle()));
    CHECK(facts.device == 1);
    CHECK(facts.context == one.handle());
    CHECK(!facts.capturing);
    CHECK(take(describe_stream(*driver, nullptr)).device == 0);
    demand(Graph::begin(*driver, stream.handle()));
    facts = take(describe_stream(*driver, stream.handle()));
    CHECK(facts.capturing);
    CHECK(facts.capture_id != 0);
    CHECK(facts.graph != nullptr);
    CHECK(!stream.synchronize());  // which ends the capture
    CHECK_ERROR(describe_stream(*driver, stream.handle()), "stream.capture");
    CHECK(contains(Graph::end(*driver, stream.handle()).status().sentence(), "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"));
    CHECK(!take(describe_stream(*driver, stream.handle())).capturing);
    CUstream gone = nullptr;
    {
        const Stream other = take(Stream::create(zero));
        gone = other.handle();
    }
    CHECK_ERROR(describe_stream(*driver, gone), "argument.stream");
}

TEST_CASE("streams with the same handle are distinguished, if the driver can", "[stream]") {
    for (const bool can : {true, false}) {
        FakeDriver driver(can ? "" : "version 11080");
        const Context context = driver.context();
        const ContextScope scope(context);
        std::vector<CUstream> handles;
        std::vector<uint64_t> ids;
        for (int round = 0; round < 2; ++round) {
            const Stream stream = take(Stream::create(context));
            handles.push_back(stream.handle());
            for (int each = 0; each < 2; ++each) ids.push_back(take(describe_stream(*driver, stream.handle())).id);
        }
        REQUIRE(handles[0] == handles[1]);
        CHECK(ids[0] == ids[1]);
        CHECK((ids[1] != ids[2]) == can);
        const auto id_of = [&](CUstream stream) { return take(describe_stream(*driver, stream)).id; };
        CHECK(id_of(CU_STREAM_LEGACY) != id_of(CU_STREAM_PER_THREAD));
        if (can) CHECK(id_of(nullptr) == id_of(CU_STREAM_LEGACY));
    }
}

TEST_CASE("another process waits for an event", "[stream]") {
    FakeDriver driver;
    const Context context = driver.context();
    const Stream stream = take(Stream::create(context));
    const Event event = take(Event::create(context, Event::EventUse::interprocess));
    const CUipcEventHandle handle = take(event.exported());
    Gate gate(context);
    gate.enqueue(stream.handle());
    demand(event.record(stream.handle()));
    Subprocess peer({DRIVER_PEER, "event", to_hex(&handle, sizeof handle)}, {"WEFT_CUDA_LIBRARY=" FAKE_CUDA_LIBRARY});
    CHECK(peer.says("not yet"));
    CHECK(!contains(peer.output(), "came"));
    gate.open();
    CHECK(peer.wait() == 0);
    CHECK(peer.output() == "not yet\ncame\n");
    const Event own = take(Event::create(context));
    CHECK(!own.exported());
}

TEST_CASE("a capture runs nothing, and its graph replays it as often as it is launched", "[graph]") {
    FakeDriver driver;
    const Context context = driver.context();
    const ContextScope scope(context);
    const Stream stream = take(Stream::create(context));
    const PinnedMemory memory = take(PinnedMemory::allocate(context, 64));
    auto* count = static_cast<std::atomic<int>*>(memory.data());
    demand(Graph::begin(*driver, stream.handle()));
    REQUIRE(driver->LaunchHostFunc(
                stream.handle(), [](void* at) { ++*static_cast<std::atomic<int>*>(at); }, count) == CUDA_SUCCESS);
    const Graph graph = take(Graph::end(*driver, stream.handle()));
    CHECK(count->load() == 0);
    for (int i = 0; i < 5; ++i) demand(graph.launch(stream.handle()));
    demand(stream.synchronize());
    CHECK(count->load() == 5);
}

TEST_CASE("streams that an event brings into a capture run at the same time, also where they wait for each other",
          "[graph]") {
    FakeDriver driver;
    const Context zero = driver.context(0), one = driver.context(1);
    const ContextScope scope(zero);
    const Stream first = take(Stream::create(zero)), second = take(Stream::create(one));
    const Event fork = take(Event::create(zero)), join = take(Event::create(one));
    const PinnedMemory there = take(PinnedMemory::allocate(zero, 64)), back = take(PinnedMemory::allocate(zero, 64));
    demand(Graph::begin(*driver, first.handle()));
    demand(fork.record(first.handle()));
    demand(second.wait_for(fork));
    CHECK(!fork.done());  // captured events cannot be asked
    write_later(*driver, first.handle(), there, 1);
    REQUIRE(driver->StreamWaitValue64(first.handle(), back.address(), 1, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS);
    REQUIRE(driver->StreamWaitValue64(second.handle(), there.address(), 1, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS);
    write_later(*driver, second.handle(), back, 1);
    demand(join.record(second.handle()));
    demand(first.wait_for(join));
    const Graph graph = take(Graph::end(*driver, first.handle()));
    demand(graph.launch(first.handle()));
    demand(first.synchronize());
    CHECK(read(back) == 1);
}

TEST_CASE("a capture that is not joined is an error", "[graph]") {
    FakeDriver driver;
    const Context context = driver.context();
    const ContextScope scope(context);
    const Stream first = take(Stream::create(context)), second = take(Stream::create(context));
    const Event fork = take(Event::create(context)), outside = take(Event::create(context));
    const PinnedMemory memory = take(PinnedMemory::allocate(context, 64));
    const auto ended = [&] { return Graph::end(*driver, first.handle()).status().sentence(); };

    demand(Graph::begin(*driver, first.handle()));
    demand(fork.record(first.handle()));
    demand(second.wait_for(fork));
    write_later(*driver, second.handle(), memory, 1);
    CHECK(contains(ended(), "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"));

    demand(outside.record(second.handle()));
    demand(Graph::begin(*driver, first.handle()));
    CHECK(contains(first.wait_for(outside).sentence(), "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"));
    CHECK(contains(ended(), "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"));

    demand(Graph::begin(*driver, first.handle()));
    std::string elsewhere;
    std::thread([&] {
        const ContextScope there(context);
        elsewhere = ended();
    }).join();
    CHECK(contains(elsewhere, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"));
    CHECK(contains(Graph::end(*driver, second.handle()).status().sentence(), "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"));
    CHECK(ended() == "");
    CHECK(!Graph::begin(*driver, nullptr));
}

TEST_CASE("allocating ends a capture, unless the thread has opted out", "[graph]") {
    FakeDriver driver;
    const Context context = driver.context();
    const ContextScope scope(context);
    const Stream stream = take(Stream::create(context));
    for (CUstreamCaptureMode mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL}) {
        demand(Graph::begin(*driver, stream.handle(), mode));
        {
            RelaxedCapture relaxed(*driver);
            (void)take(DeviceMemory::allocate(context, 64));
        }
        // A helper thread meets the capture of another only if that is global.
        bool allowed = false;
        std::thread([&] { allowed = DeviceMemory::allocate(context, 64).ok(); }).join();
        CHECK(allowed == (mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        CHECK(Graph::end(*driver, stream.handle()).ok() == allowed);
    }
    demand(Graph::begin(*driver, stream.handle()));
    CHECK(contains(DeviceMemory::allocate(context, 64).status().sentence(), "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"));
    CHECK(!Graph::end(*driver, stream.handle()));
}

TEST_CASE("the legacy stream is refused while a blocking stream is captured", "[graph]") {
    FakeDriver driver;
    const Context context = driver.context();
    const ContextScope scope(context);
    CUstream blocking = nullptr;
    REQUIRE(driver->StreamCreateWithPriority(&blocking, CU_STREAM_DEFAULT, 0) == CUDA_SUCCESS);
    const PinnedMemory memory = take(PinnedMemory::allocate(context, 64));
    demand(Graph::begin(*driver, blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_ERROR(describe_stream(*driver, nullptr), "stream.capture");
    CHECK(driver->StreamWriteValue64(nullptr, memory.address(), 1, 0) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    CHECK(!Graph::end(*driver, blocking));
    REQUIRE(driver->StreamDestroy(blocking) == CUDA_SUCCESS);
}

TEST_CASE("a graph's life ends with all that can launch it, also after the watcher's", "[graph]") {
    FakeDriver driver;
    const Context context = driver.context();
    const ContextScope scope(context);
    const Stream stream = take(Stream::create(context));
    const auto captured = [&](GraphLives& lives, std::shared_ptr<const GraphLife>& life) {
        demand(Graph::begin(*driver, stream.handle()));
        life = lives.watch(*driver, take(describe_stream(*driver, stream.handle())).graph);
        REQUIRE(life);
        return take(Graph::end(*driver, stream.handle()));
    };
    GraphLives lives;
    std::shared_ptr<const GraphLife> first, second, orphan;
    {
        const Graph longer = captured(lives, first);
        { const Graph shorter = captured(lives, second); }
        CHECK(lives.take_ended());
        CHECK_FALSE(lives.take_ended());
        CHECK((!first->ended() && second->ended()));
    }
    CHECK(lives.take_ended());
    CHECK(first->ended());
    {
        auto short_lived = std::make_unique<GraphLives>();
        const Graph graph = captured(*short_lived, orphan);
        short_lived.reset();
    }
    CHECK(orphan->ended());
}

TEST_CASE("objects that a graph retains live as long as anything that can launch it", "[graph]") {
    FakeDriver driver;
    const Context context = driver.context();
    const ContextScope scope(context);
    const Stream stream = take(Stream::create(context));
    std::atomic<bool> gone{false};
    {
        demand(Graph::begin(*driver, stream.handle()));
        CUuserObject object = nullptr;
        REQUIRE(driver->UserObjectCreate(
                    &object, &gone, [](void* at) { static_cast<std::atomic<bool>*>(at)->store(true); }, 1,
                    CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) == CUDA_SUCCESS);
        const CUgraph graph = take(describe_stream(*driver, stream.handle())).graph;
        REQUIRE(driver->GraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) == CUDA_SUCCESS);
        const Graph made = take(Graph::end(*driver, stream.handle()));
        demand(made.launch(stream.handle()));
        demand(stream.synchronize());
        CHECK(!gone.load());
    }
    CHECK(gone.load());
}
