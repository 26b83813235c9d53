// input_test.cpp: wrong arguments of calls on device memory: a sentence that says what to change, and the communicator
// lives on.
#include <climits>
#include <cstring>

#include "tests/device/ranks.hpp"
#include "tests/fake_cuda/control.hpp"

namespace weft::internal::test {

namespace {

weftResult_t reduce(weftComm_t comm, const void* send, void* receive, size_t count, CUstream stream) {
    return weftAllReduce(send, receive, count, weftUint32, weftSum, comm, reinterpret_cast<weftStream_t>(stream));
}

// The ranks can go on after any refused call.
void check_lives(const Ranks& ranks) {
    std::mt19937 random(9);
    CHECK(compare(ranks, {weftInt32, weftSum, 300, true, 0}, random) == "");
}

}  // namespace

TEST_CASE("memory of another device is refused with both devices' numbers", "[input]") {
    if (devices() < 2) return;
    const Ranks ranks({0, 1});
    const DeviceBuffer own(0, 4000), other(1, 4000);
    CHECK_REFUSED(reduce(ranks.comms[0], other.data(), own.data(), 10, ranks.streams[0]->handle), ranks.comms[0],
                  "memory.device");
    CHECK_REFUSED(reduce(ranks.comms[0], own.data(), other.data(), 10, nullptr), ranks.comms[0], "memory.device");
    check_lives(ranks);
}

TEST_CASE("one buffer of the host and one of the device are refused", "[input]") {
    const Ranks ranks(spread(2));
    const DeviceBuffer own(0, 4000);
    std::vector<uint32_t> host(1000);
    CHECK_REFUSED(reduce(ranks.comms[0], host.data(), own.data(), 10, nullptr), ranks.comms[0], "memory.kind");
    CHECK_REFUSED(reduce(ranks.comms[0], own.data(), host.data(), 10, ranks.streams[0]->handle), ranks.comms[0],
                  "memory.kind");
    check_lives(ranks);
}

TEST_CASE("host memory with a stream is refused, pinned memory too", "[input]") {
    const Ranks ranks(spread(2));
    std::vector<uint32_t> host(1000);
    CHECK_REFUSED(reduce(ranks.comms[0], host.data(), host.data(), 10, ranks.streams[0]->handle), ranks.comms[0],
                  "memory.kind");
    demand(cuCtxSetCurrent(context_of(0)));
    void* pinned = nullptr;
    demand(cuMemHostAlloc(&pinned, 4096, CU_MEMHOSTALLOC_PORTABLE));
    CHECK_REFUSED(reduce(ranks.comms[0], pinned, pinned, 10, ranks.streams[0]->handle), ranks.comms[0], "memory.kind");
    // Without one it is host memory like any other.
    memset(pinned, 0, 4096);
    std::fill(host.begin(), host.end(), 7);
    ranks.group([&](int rank) {
        void* const buffer = rank == 0 ? pinned : host.data();
        return reduce(ranks.comms[size_t(rank)], buffer, buffer, 1000, nullptr);
    });
    CHECK(static_cast<uint32_t*>(pinned)[999] == 7);
    demand(cuMemFreeHost(pinned));
    demand(cuCtxSetCurrent(nullptr));
    check_lives(ranks);
}

TEST_CASE("freed device memory is refused, with a stream and without", "[input]") {
    const Ranks ranks(spread(2));
    void* freed = nullptr;
    {
        const DeviceBuffer buffer(0, 4000);
        freed = buffer.data();
    }
    CHECK_REFUSED(reduce(ranks.comms[0], freed, freed, 10, ranks.streams[0]->handle), ranks.comms[0], "memory.unknown");
    CHECK_REFUSED(reduce(ranks.comms[0], freed, freed, 10, nullptr), ranks.comms[0], "memory.unknown");
    check_lives(ranks);
}

TEST_CASE("a buffer shorter than the message is refused", "[input]") {
    const Ranks ranks(spread(2));
    const DeviceBuffer buffer(0, 4095, 0), long_enough(0, 8192);
    CHECK_REFUSED(reduce(ranks.comms[0], buffer.data(), long_enough.data(), 1025, ranks.streams[0]->handle),
                  ranks.comms[0], "memory.bounds");
    CHECK_THAT(weftGetLastError(ranks.comms[0]), Catch::Contains(" 4 bytes"));
    // A byte of the buffer's own beside. Weft's memory ends where what was asked for does, though it is of whole pages.
    for (const auto kind : {DeviceBuffer::Kind::pool, DeviceBuffer::Kind::weft}) {
        const DeviceBuffer other(0, 4096, 0, kind);
        CHECK_REFUSED(reduce(ranks.comms[0], long_enough.data(), other.data(), 1026, ranks.streams[0]->handle),
                      ranks.comms[0], "memory.bounds");
        CHECK_THAT(weftGetLastError(ranks.comms[0]), Catch::Contains(" 7 bytes after its allocation of 4097 bytes"));
    }
    check_lives(ranks);
}

TEST_CASE("a reduction whose scalar in device memory was freed is refused", "[input][copies]") {
    const Ranks ranks(spread(2));
    const DeviceBuffer own(0, 4000);
    weftRedOp_t op;
    {
        const DeviceBuffer scalar(0, 64);
        demand(weftRedOpCreatePreMulSum(&op, scalar.data(), weftUint32, weftScalarDevice, ranks.comms[0]));
    }
    CHECK_REFUSED(weftAllReduce(own.data(), own.data(), 10, weftUint32, op, ranks.comms[0], ranks.streams[0]->weft()),
                  ranks.comms[0], "memory.unknown");
    demand(weftRedOpDestroy(op, ranks.comms[0]));
    check_lives(ranks);
}

TEST_CASE("managed memory and memory of pools count as device memory", "[input]") {
    const Ranks ranks(spread(2));
    std::vector<CUdeviceptr> managed(2), pooled(2);
    for (size_t rank = 0; rank < 2; ++rank) {
        demand(cuCtxSetCurrent(context_of(ranks.placing[rank])));
        demand(cuMemAllocManaged(&managed[rank], 4000, CU_MEM_ATTACH_GLOBAL));
        demand(cuMemAllocAsync(&pooled[rank], 4000, ranks.streams[rank]->handle));
        const std::vector<uint32_t> values(1000, 21);
        memcpy(reinterpret_cast<void*>(managed[rank]), values.data(), 4000);
    }
    ranks.group([&](int rank) {
        const auto r = size_t(rank);
        return reduce(ranks.comms[r], reinterpret_cast<void*>(managed[r]), reinterpret_cast<void*>(pooled[r]), 1000,
                      ranks.streams[r]->handle);
    });
    ranks.finish();
    for (size_t rank = 0; rank < 2; ++rank) {
        demand(cuCtxSetCurrent(context_of(ranks.placing[rank])));
        uint32_t last = 0;
        demand(cuMemcpy(reinterpret_cast<CUdeviceptr>(&last), pooled[rank] + 3996, 4));
        CHECK(last == 42);
        demand(cuMemFreeAsync(pooled[rank], ranks.streams[rank]->handle));
        ranks.streams[rank]->finish();
        demand(cuMemFree(managed[rank]));
    }
    demand(cuCtxSetCurrent(nullptr));
    check_lives(ranks);
}

TEST_CASE("a stream that has been destroyed, or never was one, is refused", "[input][copies][fake]") {
    const Ranks ranks(spread(2));
    const DeviceBuffer own(0, 4000);
    CUstream destroyed = nullptr;
    {
        const Stream stream(0);
        destroyed = stream.handle;
    }
    for (CUstream stream : {destroyed, reinterpret_cast<CUstream>(0x77777770)}) {
        CHECK_REFUSED(reduce(ranks.comms[0], own.data(), own.data(), 10, stream), ranks.comms[0], "argument.stream");
        CHECK_REFUSED(weftSend(own.data(), 10, weftUint32, 1, ranks.comms[0], reinterpret_cast<weftStream_t>(stream)),
                      ranks.comms[0], "argument.stream");
    }
    check_lives(ranks);
}

TEST_CASE("a stream of another device is refused", "[input]") {
    if (devices() < 2) return;
    const Ranks ranks({0, 1});
    const DeviceBuffer own(0, 4000);
    CHECK_REFUSED(reduce(ranks.comms[0], own.data(), own.data(), 10, ranks.streams[1]->handle), ranks.comms[0],
                  "memory.device");
    check_lives(ranks);
}

TEST_CASE("a refused argument has its name in weft.h", "[input]") {
    if (devices() < 2) return;
    const Ranks ranks({0, 1});
    const DeviceBuffer own(0, 4000), other(1, 4000);
    std::vector<uint32_t> host(10);
    weftComm_t comm = ranks.comms[0];
    weftStream_t stream = ranks.streams[0]->weft();
    // The sentence begins with the name of the argument.
    const auto refused = [&](const std::string& name, const char* id, weftResult_t result) {
        CHECK_REFUSED(result, comm, id);
        CHECK_THAT(weftGetLastError(comm), Catch::StartsWith(name + " "));
    };
    const char *elsewhere = "memory.device", *of_host = "memory.kind";
    refused("buff", elsewhere, weftBcast(other.data(), 4, weftUint32, 0, comm, stream));
    refused("buff", of_host, weftBcast(host.data(), 4, weftUint32, 1, comm, stream));
    refused("buff", "argument.null", weftBcast(nullptr, 4, weftUint32, 1, comm, stream));
    refused("recvbuff", of_host, weftRecv(host.data(), 4, weftUint32, 1, comm, stream));
    refused("recvbuff ends 3999 bytes", "memory.bounds", weftRecv(own.data(), 2000, weftUint32, 1, comm, stream));
    refused("sendbuff", elsewhere, weftSend(other.data(), 4, weftUint32, 1, comm, stream));
    refused("recvbuff", elsewhere, weftSendRecv(own.data(), 4, 1, other.data(), 4, 1, weftUint32, comm, stream));
    refused("recvbuff", of_host, weftScatter(nullptr, host.data(), 4, weftUint32, 1, comm, stream));
    refused("sendbuff", elsewhere, weftGather(other.data(), nullptr, 4, weftUint32, 1, comm, stream));
    refused("sendbuff", of_host, weftReduce(own.data(), host.data(), 4, weftUint32, weftSum, 0, comm, stream));
    weftRedOp_t op;
    refused("the scalar", elsewhere, weftRedOpCreatePreMulSum(&op, other.data(), weftUint32, weftScalarDevice, comm));
    check_lives(ranks);
}

TEST_CASE("a stream of another context of the device is refused", "[input][fake]") {
    const Ranks ranks(spread(2));
    const DeviceBuffer own(0, 4000);
    const auto other = static_cast<CUcontext>(fake::make_context(0));
    demand(cuCtxPushCurrent(other));
    CUstream stream = nullptr;
    demand(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
    demand(cuCtxPopCurrent(nullptr));
    CHECK_REFUSED(reduce(ranks.comms[0], own.data(), own.data(), 10, stream), ranks.comms[0], "memory.device");
    demand(cuStreamDestroy(stream));
    check_lives(ranks);
    // Nor can a communicator be of one.
    demand(cuCtxPushCurrent(other));
    weftComm_t comm = nullptr;
    weftUniqueId id;
    demand(weftGetUniqueId(&id));
    demand(weftCommInitRank(&comm, 1, id, 0));
    demand(cuCtxPopCurrent(nullptr));
    CHECK_REFUSED(reduce(comm, own.data(), own.data(), 10, nullptr), comm, "gpu.unavailable");
    demand(weftCommDestroy(comm));
    fake::destroy_context(other);
}

TEST_CASE("NULL is the legacy stream", "[input]") {
    if (devices() < 2) return;
    const Ranks ranks({0, 1});
    const DeviceBuffer first(0, 4000), second(1, 4000);
    const std::vector<uint32_t> values(1000, 4);
    first.write(values.data(), 4000);
    second.write(values.data(), 4000);
    ranks.group([&](int rank) {
        void* const buffer = (rank ? second : first).data();
        return reduce(ranks.comms[size_t(rank)], buffer, buffer, 1000, nullptr);
    });
    // Which blocking streams, and so these copies, come after.
    const std::vector<uint32_t> expected(1000, 8);
    CHECK(memcmp(first.read(4000).data(), expected.data(), 4000) == 0);
    CHECK(memcmp(second.read(4000).data(), expected.data(), 4000) == 0);
}

TEST_CASE("ranks of one device on one stream get an error instead of a deadlock", "[input]") {
    const Ranks ranks({0, 0});
    const DeviceBuffer first(0, 4000), second(0, 4000);
    CHECK_REFUSED(reduce(ranks.comms[0], first.data(), first.data(), 10, nullptr), ranks.comms[0], "stream.shared");
    const Stream& shared = *ranks.streams[0];
    const Ranks others({0, 0});
    CHECK(reduce(others.comms[0], first.data(), first.data(), 10, shared.handle) == weftSuccess);
    CHECK_REFUSED(reduce(others.comms[1], second.data(), second.data(), 10, shared.handle), others.comms[1],
                  "stream.shared");
    demand(weftCommAbort(others.comms[0]));  // the kernel waits for rank 1
    shared.finish();
    check_lives(ranks);
}

TEST_CASE("a communicator without a device rejects device memory and streams with that reason", "[input]") {
    demand(cuCtxSetCurrent(nullptr));
    weftComm_t comm = nullptr;
    weftUniqueId id;
    demand(weftGetUniqueId(&id));
    demand(weftCommInitRank(&comm, 1, id, 0));
    const DeviceBuffer buffer(0, 4000);
    const Stream stream(0);
    std::vector<uint32_t> host(10);
    CHECK_REFUSED(reduce(comm, buffer.data(), buffer.data(), 10, nullptr), comm, "gpu.unavailable");
    CHECK_REFUSED(reduce(comm, buffer.data(), buffer.data(), 10, stream.handle), comm, "gpu.unavailable");
    CHECK_REFUSED(reduce(comm, nullptr, nullptr, 0, stream.handle), comm, "gpu.unavailable");
    CHECK(reduce(comm, host.data(), host.data(), 10, nullptr) == weftSuccess);
    demand(weftCommDestroy(comm));
}

TEST_CASE("a rank that joined without a device is named on every rank", "[input]") {
    weftComm_t comms[2];
    weftUniqueId id;
    demand(weftGetUniqueId(&id));
    demand(weftGroupStart());
    demand(cuCtxSetCurrent(context_of(0)));
    demand(weftCommInitRank(&comms[0], 2, id, 0));
    demand(cuCtxSetCurrent(nullptr));
    demand(weftCommInitRank(&comms[1], 2, id, 1));
    demand(weftGroupEnd());
    const DeviceBuffer buffer(0, 4000);
    const Stream stream(0);
    CHECK_REFUSED(reduce(comms[0], buffer.data(), buffer.data(), 10, stream.handle), comms[0], "gpu.unavailable");
    CHECK_THAT(weftGetLastError(comms[0]), Catch::Contains("rank 1 joined without a device"));
    CHECK_REFUSED(reduce(comms[1], buffer.data(), buffer.data(), 10, nullptr), comms[1], "gpu.unavailable");
    for (weftComm_t comm : comms) demand(weftCommDestroy(comm));
}

TEST_CASE("WEFT_ALGO can leave nothing for device memory", "[input]") {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.algo = "two_level_ring";
    const Ranks ranks(spread(2), &config);
    const DeviceBuffer buffer(0, 4000);
    CHECK_REFUSED(reduce(ranks.comms[0], buffer.data(), buffer.data(), 10, ranks.streams[0]->handle), ranks.comms[0],
                  "gpu.not-served");
    CHECK_THAT(weftGetLastError(ranks.comms[0]),
               Catch::Contains("WEFT_ALGO is two_level_ring: all_reduce on device memory of 2 ranks"));
}

TEST_CASE("a capture that has been ended by an error says so, and the next capture works", "[input]") {
    const Ranks ranks(spread(1));
    const DeviceBuffer buffer(0, 4000);
    const std::vector<uint32_t> values(1000, 4);
    buffer.write(values.data(), 4000);
    demand(cuCtxSetCurrent(context_of(0)));
    const CUstream stream = ranks.streams[0]->handle;
    CUdeviceptr never = 0;
    CUgraph graph = nullptr;
    demand(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuMemAlloc(&never, 64) != CUDA_SUCCESS);
    CHECK_REFUSED(reduce(ranks.comms[0], buffer.data(), buffer.data(), 10, stream), ranks.comms[0], "stream.capture");
    CHECK(cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS);
    const Stream blocking(0, CU_STREAM_DEFAULT);
    demand(cuStreamBeginCapture(blocking.handle, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_REFUSED(reduce(ranks.comms[0], buffer.data(), buffer.data(), 10, nullptr), ranks.comms[0], "stream.capture");
    CHECK(reduce(ranks.comms[0], buffer.data(), buffer.data(), 10, blocking.handle) == weftSuccess);
    demand(cuStreamEndCapture(blocking.handle, &graph));
    demand(cuGraphDestroy(graph));
    demand(cuCtxSetCurrent(nullptr));
    check_lives(ranks);
}

TEST_CASE("kernels have the priority that calls ask for, as far as the device has it", "[input][fake]") {
    const Ranks ranks(spread(2));
    const DeviceBuffer first(ranks.placing[0], 4000), second(ranks.placing[1], 4000);
    void* const buffers[] = {first.data(), second.data()};
    weftCallConfig_t config = WEFT_CALL_CONFIG_INITIALIZER;
    const auto priority_of = [&](bool messages, const weftCallConfig_t* settings) {
        for (weftComm_t comm : ranks.comms) demand(weftCommSetCallConfig(comm, settings));
        ranks.group([&](int rank) {
            weftComm_t comm = ranks.comms[size_t(rank)];
            weftStream_t stream = ranks.streams[size_t(rank)]->weft();
            void* const buffer = buffers[rank];
            if (!messages) return weftAllReduce(buffer, buffer, 10, weftInt32, weftSum, comm, stream);
            return rank == 0 ? weftSend(buffer, 10, weftInt32, 1, comm, stream)
                             : weftRecv(buffer, 10, weftInt32, 0, comm, stream);
        });
        ranks.finish();
        return fake::last_priority();
    };
    for (const bool messages : {false, true}) {
        INFO(messages);
        config.priority = -3;
        CHECK(priority_of(messages, &config) == -3);
        config.priority = -100;
        CHECK(priority_of(messages, &config) == -5);
        config.priority = 7;
        CHECK(priority_of(messages, &config) == 0);
        CHECK(priority_of(messages, nullptr) == INT_MIN);
    }
    check_lives(ranks);
}

}  // namespace weft::internal::test
