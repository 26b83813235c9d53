// results_test.cpp: all-reduce on device memory gives the bits that it gives on host memory, on one device and several,
// in place and out of place, on several streams, in graphs.
#include <cstring>
#include <thread>

#include "tests/device/ranks.hpp"

namespace weft::internal::test {

namespace {

// The host's answers in rank order, as the kernels give them.
weftConfig_t in_rank_order() { return with_algo("one_shot,two_shot"); }

std::vector<int> rank_counts() { return small() ? std::vector{1, 2, 3} : std::vector{1, 2, 3, 4, 5, 8}; }

}  // namespace

TEST_CASE("every type and reduction gives the host's bits", "[results][copies]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const weftConfig_t config = in_rank_order();
    for (const int n : rank_counts()) {
        const Ranks ranks(spread(n), &config);
        for (int type = 0; type < weftNumTypes; ++type)
            for (int op = 0; op <= weftNumOps; ++op) {
                if (!serves(weftRedOp_t(op), weftDataType_t(type))) continue;
                for (const size_t count : {size_t(0), size_t(1), size_t(random() % 300), 2000 + random() % 3000}) {
                    Question question{weftDataType_t(type), op, count, random() % 2 == 0, 0};
                    if (random() % 2) question.offset = size_of(question.type) * (random() % 5);
                    INFO(n << " ranks");
                    CHECK(compare(ranks, question, random) == "");
                }
            }
    }
}

TEST_CASE("long messages, in packets, in place and through staging memory, give the host's bits", "[results]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const weftConfig_t config = in_rank_order();
    for (const int n : small() ? std::vector{2} : std::vector{1, 2, 3, 8}) {
        const Ranks ranks(spread(n), &config);
        // By bytes: two-shot packets; staged in one tile; in several, the last of which is short.
        for (const size_t bytes : {size_t(200'004), size_t(1 << 20), size_t(9'000'012)})
            for (const int type : {int(weftFloat32), int(weftBfloat16), int(weftInt8)}) {
                if (bytes > 2 << 20 && type != weftFloat32) continue;
                for (const int op : {int(weftSum), int(weftMax), int(weftAvg), int(weftNumOps)}) {
                    if (bytes > 2 << 20 && op != weftSum && op != weftNumOps) continue;
                    if (small() && sanitized && random() % 4 != 0) continue;
                    const Question question{weftDataType_t(type), op, bytes / size_of(weftDataType_t(type)),
                                            random() % 2 == 0, 0};
                    INFO(n << " ranks");
                    CHECK(compare(ranks, question, random) == "");
                }
            }
    }
}

TEST_CASE("a scalar in device memory is read when the kernel runs, in a replay too", "[results]") {
    for (const char* algo : {static_cast<const char*>(nullptr), "ring"}) {
        const weftConfig_t config = with_algo(algo);
        const Ranks ranks(spread(2), &config);
        std::vector<std::unique_ptr<DeviceBuffer>> scalars, inputs, outputs;
        std::vector<weftRedOp_t> ops(2);
        const size_t count = 3000;
        for (size_t rank = 0; rank < 2; ++rank) {
            const std::vector<uint32_t> values(count, uint32_t(rank + 1));
            for (auto* list : {&scalars, &inputs, &outputs})
                list->push_back(std::make_unique<DeviceBuffer>(ranks.placing[rank], count * 4));
            inputs[rank]->write(values.data(), count * 4);
            demand(weftRedOpCreatePreMulSum(&ops[rank], scalars[rank]->data(), weftUint32, weftScalarDevice,
                                            ranks.comms[rank]));
        }
        const auto enqueue = [&] {
            ranks.group([&](int rank) {
                const auto r = size_t(rank);
                return weftAllReduce(inputs[r]->data(), outputs[r]->data(), count, weftUint32, ops[r], ranks.comms[r],
                                     ranks.streams[r]->weft());
            });
        };
        const auto check = [&](uint32_t first, uint32_t second, const std::function<void()>& launch) {
            const uint32_t factors[] = {first, second};
            for (size_t rank = 0; rank < 2; ++rank) scalars[rank]->write(&factors[rank], 4);
            launch();
            ranks.finish();
            const std::vector<uint32_t> right(count, first + 2 * second);
            for (const auto& output : outputs)
                CHECK(memcmp(output->read(count * 4).data(), right.data(), count * 4) == 0);
        };
        check(3, 5, enqueue);
        std::vector<CUgraphExec> graphs(2);
        for (const auto& stream : ranks.streams) {
            const Current current(stream->device);
            demand(cuStreamBeginCapture(stream->handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        }
        enqueue();
        for (size_t rank = 0; rank < 2; ++rank) {
            const Current current(ranks.placing[rank]);
            CUgraph graph;
            demand(cuStreamEndCapture(ranks.streams[rank]->handle, &graph));
            demand(cuGraphInstantiateWithFlags(&graphs[rank], graph, 0));
            demand(cuGraphDestroy(graph));
        }
        const auto replay = [&] {
            for (size_t rank = 0; rank < 2; ++rank) {
                const Current current(ranks.placing[rank]);
                demand(cuGraphLaunch(graphs[rank], ranks.streams[rank]->handle));
            }
        };
        check(7, 11, replay);
        check(1, 1, replay);
        for (CUgraphExec graph : graphs) demand(cuGraphExecDestroy(graph));
        std::vector<uint32_t> host(count);
        CHECK(weftAllReduce(host.data(), host.data(), count, weftUint32, ops[0], ranks.comms[0], nullptr) ==
              weftInvalidArgument);
        CHECK(weftRedOpCreatePreMulSum(&ops[0], host.data(), weftUint32, weftScalarDevice, ranks.comms[0]) ==
              weftInvalidArgument);
    }
}

TEST_CASE("up to 72 ranks use fused kernels, and more work on copies", "[results]") {
    std::mt19937 random(4);
    const weftConfig_t config = in_rank_order();
    for (const int n : {16, 17, small() ? 18 : 72}) {
        const Ranks ranks(spread(n), &config);
        for (const size_t count : {10, n == 72 ? 2'000 : 20'000})
            CHECK(compare(ranks, {weftFloat32, weftSum, count, false, 0}, random) == "");
    }
    if (small()) return;
    const Ranks many(spread(73));
    CHECK(compare(many, {weftInt32, weftSum, 1000, false, 0}, random) == "");
    char text[8000];
    demand(weftCommExplain(many.comms[0], 100, weftInt32, weftSum, text, sizeof text, nullptr));
    CHECK_THAT(text, Catch::Contains("on copies in the host's memory, because the communicator has 73 ranks"));
}

TEST_CASE("on copies ranks take the legacy stream, whether they share a device or not", "[copies]") {
    if (!on_copies()) return;
    const Ranks ranks(GENERATE(std::vector<int>{0, 1}, std::vector<int>{0, 0}));
    const uint32_t ours[] = {5, 6};
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    for (const int device : ranks.placing) {
        buffers.push_back(std::make_unique<DeviceBuffer>(device, sizeof ours));
        buffers.back()->write(ours, sizeof ours);
    }
    ranks.group([&](int rank) {
        void* const at = buffers[size_t(rank)]->data();
        return weftAllReduce(at, at, 2, weftUint32, weftSum, ranks.comms[size_t(rank)], nullptr);
    });
    const uint32_t expected[] = {10, 12};
    for (const auto& buffer : buffers) CHECK(memcmp(buffer->read(sizeof expected).data(), expected, 8) == 0);
}

TEST_CASE("ranks in threads of their own call as they like", "[results][copies]") {
    const char* const algo = GENERATE(as<const char*>(), nullptr, "ring", "halving_doubling");
    const weftConfig_t config = with_algo(algo);
    const int n = small() ? 2 : 4, calls = small() ? 10 : 60;
    weftUniqueId id;
    demand(weftGetUniqueId(&id));
    const std::vector<int> placing = spread(n);
    check_on_threads(n, [&](int rank) {
        const int device = placing[size_t(rank)];
        demand(cuCtxSetCurrent(context_of(device)));
        weftComm_t comm = nullptr;
        demand(weftCommInitRankConfig(&comm, n, id, rank, &config));
        const Stream stream(device);
        const DeviceBuffer buffer(device, 4096);
        // All ranks draw the same sizes; the host goes on without waiting.
        std::mt19937 random(7);
        std::vector<uint32_t> expected(1024, 1);
        buffer.write(expected.data(), 4096);
        for (int call = 0; call < calls; ++call) {
            const size_t count = 1 + random() % 1024;
            demand(weftAllReduce(buffer.data(), buffer.data(), count, weftUint32, weftSum, comm, stream.weft()), comm);
            for (size_t i = 0; i < count; ++i) expected[i] *= uint32_t(n);
        }
        stream.finish();
        if (memcmp(buffer.read(4096).data(), expected.data(), 4096) != 0)
            throw std::runtime_error("rank " + std::to_string(rank) + " has a wrong result");
        demand(weftCommDestroy(comm));
    });
}

TEST_CASE("a call follows the one before on another stream", "[streams]") {
    const weftConfig_t config = with_algo(GENERATE(as<const char*>(), nullptr, "double_binary_tree"));
    const Ranks ranks(spread(3), &config);
    std::vector<std::unique_ptr<Stream>> others;
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    const std::vector<uint32_t> ones(5000, 1);
    for (const int device : ranks.placing) {
        others.push_back(std::make_unique<Stream>(device));
        buffers.push_back(std::make_unique<DeviceBuffer>(device, 20'000));
        buffers.back()->write(ones.data(), 20'000);
    }
    const int calls = small() ? 6 : 15;
    uint32_t power = 1;
    for (int call = 0; call < calls; ++call) {
        power *= 3;
        // Each reads the previous rank's output, without a wait in between.
        ranks.group([&](int rank) {
            const auto r = size_t(rank);
            const Stream& stream = call % 2 ? *others[r] : *ranks.streams[r];
            return weftAllReduce(buffers[r]->data(), buffers[r]->data(), 5000, weftUint32, weftSum, ranks.comms[r],
                                 stream.weft());
        });
    }
    for (const auto& stream : others) stream->finish();
    ranks.finish();
    ranks.check_healthy();
    for (const auto& buffer : buffers) {
        const Bytes got = buffer->read(20'000);
        const std::vector<uint32_t> expected(5000, power);
        CHECK(memcmp(got.data(), expected.data(), 20'000) == 0);
    }
}

TEST_CASE("each thread may call on its default stream", "[streams]") {
    const int n = 2, calls = small() ? 4 : 20;
    weftUniqueId id;
    demand(weftGetUniqueId(&id));
    const std::vector<int> placing = spread(n);
    check_on_threads(n, [&](int rank) {
        const Current current(placing[size_t(rank)]);
        // Before the ranks meet: the write waits for what is on the default streams of all threads, and a kernel there
        // may wait for this rank.
        const DeviceBuffer buffer(placing[size_t(rank)], 4000);
        const std::vector<uint32_t> ones(1000, 1);
        buffer.write(ones.data(), 4000);
        weftComm_t comm = nullptr;
        demand(weftCommInitRank(&comm, n, id, rank));
        for (int call = 0; call < calls; ++call)
            demand(weftAllReduce(buffer.data(), buffer.data(), 1000, weftUint32, weftSum, comm,
                                 reinterpret_cast<weftStream_t>(CU_STREAM_PER_THREAD)),
                   comm);
        demand(cuStreamSynchronize(CU_STREAM_PER_THREAD));
        const std::vector<uint32_t> expected(1000, 1u << calls);
        if (memcmp(buffer.read(4000).data(), expected.data(), 4000) != 0)
            throw std::runtime_error("rank " + std::to_string(rank) + " has a wrong result");
        demand(weftCommDestroy(comm));
    });
}

TEST_CASE("several calls of a group run in their order", "[streams]") {
    const Ranks ranks(spread(2));
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    const uint64_t one = 1;
    for (const int device : ranks.placing) {
        buffers.push_back(std::make_unique<DeviceBuffer>(device, 8));
        buffers.back()->write(&one, 8);
    }
    demand(weftGroupStart());
    for (size_t rank = 0; rank < 2; ++rank)
        for (int call = 0; call < 10; ++call)
            demand(weftAllReduce(buffers[rank]->data(), buffers[rank]->data(), 1, weftUint64, weftSum,
                                 ranks.comms[rank], ranks.streams[rank]->weft()));
    demand(weftGroupEnd());
    ranks.finish();
    ranks.check_healthy();
    for (const auto& buffer : buffers) {
        const Bytes got = buffer->read(8);
        uint64_t value = 0;
        memcpy(&value, got.data(), 8);
        CHECK(value == 1024);
    }
}

TEST_CASE("a captured call replays, and between replays calls go on", "[graphs]") {
    const weftConfig_t config =
        with_algo(GENERATE(as<const char*>(), nullptr, "ring", "double_binary_tree", "recursive_doubling"));
    const Ranks ranks(spread(2), &config);
    for (const size_t count : {size_t(3), size_t(40'000), size_t(200'000)}) {
        std::vector<std::unique_ptr<DeviceBuffer>> buffers;
        std::vector<CUgraphExec> graphs;
        for (size_t rank = 0; rank < 2; ++rank) {
            buffers.push_back(std::make_unique<DeviceBuffer>(ranks.placing[rank], count * 4));
            const std::vector<uint32_t> ones(count, 1);
            buffers.back()->write(ones.data(), count * 4);
        }
        for (size_t rank = 0; rank < 2; ++rank) {
            demand(cuCtxSetCurrent(context_of(ranks.placing[rank])));
            demand(cuStreamBeginCapture(ranks.streams[rank]->handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        }
        const auto call = [&](int rank) {
            const auto r = size_t(rank);
            return weftAllReduce(buffers[r]->data(), buffers[r]->data(), count, weftUint32, weftSum, ranks.comms[r],
                                 ranks.streams[r]->weft());
        };
        ranks.group(call);
        for (size_t rank = 0; rank < 2; ++rank) {
            CUgraph graph;
            demand(cuCtxSetCurrent(context_of(ranks.placing[rank])));
            demand(cuStreamEndCapture(ranks.streams[rank]->handle, &graph));
            graphs.emplace_back();
            demand(cuGraphInstantiateWithFlags(&graphs.back(), graph, 0));
            demand(cuGraphDestroy(graph));
        }
        // Nothing has run so far.
        const Bytes untouched = buffers[0]->read(4);
        uint32_t value = 0;
        memcpy(&value, untouched.data(), 4);
        CHECK(value == 1);
        uint32_t power = 1;
        for (int round = 0; round < (small() ? 3 : 10); ++round) {
            for (size_t rank = 0; rank < 2; ++rank) {
                demand(cuCtxSetCurrent(context_of(ranks.placing[rank])));
                demand(cuGraphLaunch(graphs[rank], ranks.streams[rank]->handle));
            }
            power *= 2;
            if (round % 2 == 0) {
                ranks.group(call);
                power *= 2;
            }
        }
        ranks.finish();
        ranks.check_healthy();
        for (const auto& buffer : buffers) {
            const Bytes got = buffer->read(count * 4);
            const std::vector<uint32_t> expected(count, power);
            CHECK(memcmp(got.data(), expected.data(), count * 4) == 0);
        }
        for (size_t rank = 0; rank < 2; ++rank) demand(cuGraphExecDestroy(graphs[rank]));
    }
    demand(cuCtxSetCurrent(nullptr));
}

TEST_CASE("a graph may hold calls of two communicators", "[graphs]") {
    const weftConfig_t config = with_algo(GENERATE(as<const char*>(), nullptr, "ring"));
    const Ranks first(spread(2), &config), second(spread(2), &config);
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    const std::vector<uint32_t> ones(3000, 1);
    for (const int device : first.placing) {
        buffers.push_back(std::make_unique<DeviceBuffer>(device, 12'000));
        buffers.back()->write(ones.data(), 12'000);
    }
    // On one stream, so each reads what the other has written.
    const Captured graphs(first, [&] {
        for (const Ranks* ranks : {&first, &second, &first})
            ranks->group([&](int rank) {
                const auto r = size_t(rank);
                return weftAllReduce(buffers[r]->data(), buffers[r]->data(), 3000, weftUint32, weftSum, ranks->comms[r],
                                     first.streams[r]->weft());
            });
    });
    const int launches = small() ? 2 : 8;
    for (int launch = 0; launch < launches; ++launch) graphs.launch();
    first.finish();
    first.check_healthy();
    second.check_healthy();
    const std::vector<uint32_t> expected(3000, 1u << 3 * launches);
    for (const auto& buffer : buffers) CHECK(memcmp(buffer->read(12'000).data(), expected.data(), 12'000) == 0);
}

TEST_CASE("one capture over two streams keeps the order of calls", "[graphs]") {
    const Ranks ranks(spread(2));
    std::vector<CUgraphExec> graphs(2);
    std::vector<std::unique_ptr<Stream>> others;
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    std::vector<CUevent> forks(2), joins(2);
    const std::vector<uint32_t> ones(3000, 1);
    for (size_t rank = 0; rank < 2; ++rank) {
        demand(cuCtxSetCurrent(context_of(ranks.placing[rank])));
        others.push_back(std::make_unique<Stream>(ranks.placing[rank]));
        buffers.push_back(std::make_unique<DeviceBuffer>(ranks.placing[rank], 12'000));
        buffers.back()->write(ones.data(), 12'000);
        demand(cuEventCreate(&forks[rank], CU_EVENT_DISABLE_TIMING));
        demand(cuEventCreate(&joins[rank], CU_EVENT_DISABLE_TIMING));
    }
    for (size_t rank = 0; rank < 2; ++rank) {
        demand(cuCtxSetCurrent(context_of(ranks.placing[rank])));
        demand(cuStreamBeginCapture(ranks.streams[rank]->handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        // The second stream joins the capture before any call: only Weft orders the calls.
        demand(cuEventRecord(forks[rank], ranks.streams[rank]->handle));
        demand(cuStreamWaitEvent(others[rank]->handle, forks[rank], 0));
    }
    for (int call = 0; call < 4; ++call)
        ranks.group([&](int rank) {
            const auto r = size_t(rank);
            return weftAllReduce(buffers[r]->data(), buffers[r]->data(), 3000, weftUint32, weftSum, ranks.comms[r],
                                 (call % 2 ? *others[r] : *ranks.streams[r]).weft());
        });
    for (size_t rank = 0; rank < 2; ++rank) {
        demand(cuCtxSetCurrent(context_of(ranks.placing[rank])));
        demand(cuEventRecord(joins[rank], others[rank]->handle));
        demand(cuStreamWaitEvent(ranks.streams[rank]->handle, joins[rank], 0));
        CUgraph graph;
        demand(cuStreamEndCapture(ranks.streams[rank]->handle, &graph));
        demand(cuGraphInstantiateWithFlags(&graphs[rank], graph, 0));
        demand(cuGraphDestroy(graph));
    }
    for (size_t rank = 0; rank < 2; ++rank) {
        demand(cuCtxSetCurrent(context_of(ranks.placing[rank])));
        demand(cuGraphLaunch(graphs[rank], ranks.streams[rank]->handle));
    }
    ranks.finish();
    ranks.check_healthy();
    for (size_t rank = 0; rank < 2; ++rank) {
        const Bytes got = buffers[rank]->read(12'000);
        const std::vector<uint32_t> expected(3000, 16);
        CHECK(memcmp(got.data(), expected.data(), 12'000) == 0);
        demand(cuGraphExecDestroy(graphs[rank]));
        demand(cuEventDestroy(forks[rank]));
        demand(cuEventDestroy(joins[rank]));
    }
    demand(cuCtxSetCurrent(nullptr));
}

TEST_CASE("a large message is staged on all ranks if one rank's memory cannot be used in place", "[results]") {
    const Ranks ranks(spread(3));
    constexpr size_t count = 300'000;
    for (const int managed_rank : {-1, 0, 1, 2}) {
        INFO("rank " << managed_rank << " has managed memory");
        std::vector<std::unique_ptr<DeviceBuffer>> buffers;
        std::vector<CUdeviceptr> managed(3);
        for (int rank = 0; rank < 3; ++rank) {
            const Current current(ranks.placing[size_t(rank)]);
            demand(cuMemAllocManaged(&managed[size_t(rank)], count * 4, CU_MEM_ATTACH_GLOBAL));
            buffers.push_back(std::make_unique<DeviceBuffer>(ranks.placing[size_t(rank)], count * 4));
            const std::vector<uint32_t> values(count, uint32_t(rank + 1));
            buffers.back()->write(values.data(), count * 4);
            memcpy(reinterpret_cast<void*>(managed[size_t(rank)]), values.data(), count * 4);
        }
        const auto memory = [&](int rank) {
            return rank == managed_rank ? reinterpret_cast<void*>(managed[size_t(rank)])
                                        : buffers[size_t(rank)]->data();
        };
        ranks.group([&](int rank) {
            return weftAllReduce(memory(rank), memory(rank), count, weftUint32, weftSum, ranks.comms[size_t(rank)],
                                 ranks.streams[size_t(rank)]->weft());
        });
        ranks.finish();
        ranks.check_healthy();
        const std::vector<uint32_t> expected(count, 6);
        for (int rank = 0; rank < 3; ++rank) {
            const Bytes got = buffers[size_t(rank)]->read(count * 4);
            const void* const result = rank == managed_rank ? reinterpret_cast<void*>(managed[size_t(rank)])
                                                            : static_cast<const void*>(got.data());
            CHECK(memcmp(result, expected.data(), count * 4) == 0);
            const Current current(ranks.placing[size_t(rank)]);
            demand(cuMemFree(managed[size_t(rank)]));
        }
    }
}

TEST_CASE("weftCommInitAll takes a list of devices", "[results]") {
    std::vector<int> list = spread(2);
    weftComm_t comms[2];
    demand(weftCommInitAll(comms, 2, list.data()));
    char text[8000];
    demand(weftCommExplain(comms[0], 1 << 20, weftInt32, weftSum, text, sizeof text, nullptr));
    CHECK_THAT(text, Catch::Contains("in device memory: peer_two_shot") && Catch::Contains(", in place where all"));
    demand(weftCommExplain(comms[0], 100, weftFloat32, weftSum, text, sizeof text, nullptr));
    CHECK_THAT(text, Catch::Contains("in device memory: packet_one_shot"));
    int seen = -1;
    demand(weftGetDeviceCount(&seen));
    CHECK(seen == devices());
    for (size_t rank = 0; rank < 2; ++rank) {
        int device = -1;
        demand(weftCommCuDevice(comms[rank], &device));
        CHECK(device == list[rank]);
        demand(weftCommDestroy(comms[rank]));
    }
    list[1] = devices();
    CHECK_REFUSED(weftCommInitAll(comms, 2, list.data()), nullptr, "argument.device");
}

TEST_CASE("two communicators on the same devices do not disturb each other", "[results]") {
    std::mt19937 random(3);
    const weftConfig_t config = in_rank_order();
    const Ranks one(spread(2), &config), other(spread(3), &config);
    for (int round = 0; round < 5; ++round) {
        CHECK(compare(one, {weftFloat32, weftSum, 1000, false, 0}, random) == "");
        CHECK(compare(other, {weftInt32, weftMax, 3000, true, 0}, random) == "");
    }
}

}  // namespace weft::internal::test
