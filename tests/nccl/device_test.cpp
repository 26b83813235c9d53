// device_test.cpp: device memory, streams, graphs and windows through libnccl.so.2, on the fake driver.
// One thread drives two ranks, each on a device of its own.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/nccl/abi.h"
#include "tests/catch.hpp"
#include "tests/device/program.hpp"
#include "tests/fake_cuda/control.hpp"

namespace weft::internal::test {
static void demand(ncclResult_t result) {
    if (result != ncclSuccess) throw std::runtime_error(std::to_string(int(result)) + ": " + ncclGetLastError(nullptr));
}

namespace {

// The call fails with this code, and the thread's last error has the part.
#define CHECK_FAILS(call, code, part)                                 \
    do {                                                              \
        CHECK((call) == (code));                                      \
        CHECK_THAT(ncclGetLastError(nullptr), Catch::Contains(part)); \
    } while (0)

// Floats of ncclMemAlloc on a device.
class Floats {
  public:
    Floats(int device, const std::vector<float>& values) : device_(device), count_(values.size()) {
        const Current current(device);
        demand(ncclMemAlloc(&data_, count_ * sizeof(float)));
        write(values);
    }
    Floats(const Floats&) = delete;
    ~Floats() { CHECK(ncclMemFree(data_) == ncclSuccess); }
    void* data() const { return data_; }
    void write(const std::vector<float>& values) const {
        const Current current(device_);
        demand(cuMemcpy(reinterpret_cast<CUdeviceptr>(data_), reinterpret_cast<CUdeviceptr>(values.data()),
                        count_ * sizeof(float)));
    }
    std::vector<float> read() const {
        const Current current(device_);
        std::vector<float> values(count_);
        demand(cuMemcpy(reinterpret_cast<CUdeviceptr>(values.data()), reinterpret_cast<CUdeviceptr>(data_),
                        count_ * sizeof(float)));
        return values;
    }

  private:
    int device_;
    size_t count_;
    void* data_ = nullptr;
};

struct Ranks {
    Ranks() { demand(ncclCommInitAll(comms, 2, nullptr)); }
    Ranks(const Ranks&) = delete;
    ~Ranks() {
        for (ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
    }
    // call(rank) on both ranks as one group.
    template <class Call>
    void group(Call&& call) const {
        demand(ncclGroupStart());
        for (int rank = 0; rank < 2; ++rank) demand(call(rank));
        demand(ncclGroupEnd());
    }
    void finish() const {
        for (const Stream& stream : streams) stream.finish();
    }
    ncclComm_t comms[2] = {};
    const Stream streams[2] = {Stream(0), Stream(1)};
};

const std::vector<float> ones(1000, 1), twos(1000, 2);

}  // namespace

TEST_CASE("ncclCommInitAll without a list uses the first devices", "[nccl]") {
    const Ranks ranks;
    for (int rank = 0; rank < 2; ++rank) {
        int device = -1;
        demand(ncclCommCuDevice(ranks.comms[rank], &device));
        CHECK(device == rank);
        ncclCommProperties_t properties{};
        properties.size = sizeof properties, properties.magic = NCCL_API_MAGIC, properties.version = WEFT_NCCL_2_30;
        demand(ncclCommQueryProperties(ranks.comms[rank], &properties));
        CHECK(properties.cudaDev == rank);
    }
    std::vector<ncclComm_t> more(size_t(devices()) + 1);
    CHECK_FAILS(ncclCommInitAll(more.data(), int(more.size()), nullptr), ncclInvalidArgument, "[argument.device]");
}

TEST_CASE("minCTAs, maxCTAs and CTAPolicy of a communicator and of a call limit the blocks of kernels", "[nccl]") {
    const auto blank = [] {
        ncclConfig_t config;
        std::memset(static_cast<void*>(&config), 0, sizeof config);
        config.size = sizeof config, config.magic = NCCL_API_MAGIC, config.version = WEFT_NCCL_2_31;
        for (int ncclConfig_t::*field :
             {&ncclConfig_t::blocking, &ncclConfig_t::minCTAs, &ncclConfig_t::maxCTAs, &ncclConfig_t::CTAPolicy,
              &ncclConfig_t::cgaClusterSize, &ncclConfig_t::splitShare, &ncclConfig_t::launchOrderImplicit})
            config.*field = NCCL_CONFIG_UNDEF_INT;
        return config;
    };
    ncclConfig_t few = blank(), saving = blank(), many = blank();
    few.maxCTAs = 2;
    saving.CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY;
    many.minCTAs = 40, many.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    const std::vector<float> large(1 << 20, 1);
    const Floats buffers[] = {{0, large}, {1, large}};
    const Stream streams[2] = {Stream(0), Stream(1)};
    const struct {
        ncclConfig_t config;
        int blocks;
    } cases[] = {{few, 2}, {saving, 24}, {many, 40}};
    for (const auto& each : cases) {
        ncclUniqueId id;
        demand(ncclGetUniqueId(&id));
        ncclComm_t comms[2] = {};
        ncclConfig_t config = each.config;
        demand(ncclGroupStart());
        for (int rank = 0; rank < 2; ++rank) {
            const Current current(rank);
            demand(ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config));
        }
        demand(ncclGroupEnd());
        const auto reduce = [&](int most, size_t count) {
            ncclCollConfig_t call{};
            call.size = sizeof call, call.magic = NCCL_API_MAGIC, call.version = WEFT_NCCL_2_32;
            call.maxCTAs = most;
            demand(ncclGroupStart());
            for (int rank = 0; rank < 2; ++rank)
                demand(ncclAllReduceConfig(buffers[rank].data(), buffers[rank].data(), count, ncclInt32, ncclMax,
                                           comms[rank], streams[rank].handle, &call));
            demand(ncclGroupEnd());
            for (const Stream& stream : streams) stream.finish();
            return fake::last_blocks();
        };
        CHECK(reduce(0, large.size()) == each.blocks);
        CHECK(reduce(3, large.size()) == 3);
        CHECK(reduce(0, large.size()) == each.blocks);
        for (ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
    }
}

TEST_CASE("a reduction of memory of ncclMemAlloc waits for the work before it in its stream", "[nccl]") {
    const Ranks ranks;
    const Floats buffers[] = {{0, twos}, {1, twos}};
    for (int rank = 0; rank < 2; ++rank) {
        unsigned type = 0;
        demand(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                     reinterpret_cast<CUdeviceptr>(buffers[rank].data())));
        CHECK(type == CU_MEMORYTYPE_DEVICE);
        const Current current(rank);
        demand(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(buffers[rank].data()),
                             reinterpret_cast<CUdeviceptr>(ones.data()), ones.size() * sizeof(float),
                             ranks.streams[rank].handle));
    }
    ranks.group([&](int rank) {
        return ncclAllReduce(buffers[rank].data(), buffers[rank].data(), ones.size(), ncclFloat32, ncclSum,
                             ranks.comms[rank], ranks.streams[rank].handle);
    });
    ranks.finish();
    for (const Floats& buffer : buffers) CHECK(buffer.read() == twos);
    for (ncclComm_t comm : ranks.comms) {
        ncclResult_t state = ncclInProgress;
        demand(ncclCommGetAsyncError(comm, &state));
        CHECK(state == ncclSuccess);
        uint64_t bytes = 0;
        demand(ncclCommMemStats(comm, ncclStatGpuMemTotal, &bytes));
        CHECK(bytes > 0);
    }
}

TEST_CASE("a captured group reads its buffers at each replay", "[nccl]") {
    const Ranks ranks;
    const Floats from[] = {{0, ones}, {1, ones}}, to[] = {{0, ones}, {1, ones}};
    for (int rank = 0; rank < 2; ++rank) {
        const Current current(rank);
        demand(cuStreamBeginCapture(ranks.streams[rank].handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    }
    ranks.group([&](int rank) {
        return ncclAllReduce(from[rank].data(), to[rank].data(), ones.size(), ncclFloat32, ncclSum, ranks.comms[rank],
                             ranks.streams[rank].handle);
    });
    CUgraphExec graphs[2];
    for (int rank = 0; rank < 2; ++rank) {
        const Current current(rank);
        CUgraph graph;
        demand(cuStreamEndCapture(ranks.streams[rank].handle, &graph));
        demand(cuGraphInstantiateWithFlags(&graphs[rank], graph, 0));
        demand(cuGraphDestroy(graph));
    }
    CHECK(to[0].read() == ones);  // nothing has run yet
    for (const float value : {1.0F, 2.0F, 3.0F}) {
        for (const Floats& buffer : from) buffer.write(std::vector<float>(ones.size(), value));
        for (int rank = 0; rank < 2; ++rank) {
            const Current current(rank);
            demand(cuGraphLaunch(graphs[rank], ranks.streams[rank].handle));
        }
        ranks.finish();
        for (const Floats& buffer : to) CHECK(buffer.read() == std::vector<float>(ones.size(), 2 * value));
    }
    for (CUgraphExec graph : graphs) demand(cuGraphExecDestroy(graph));
}

TEST_CASE("a pre-multiplied sum reads its scalar in device memory when it runs", "[nccl]") {
    const Ranks ranks;
    const Floats scalars[] = {{0, {5}}, {1, {5}}}, buffers[] = {{0, ones}, {1, ones}};
    ncclRedOp_t ops[2];
    for (int rank = 0; rank < 2; ++rank)
        demand(ncclRedOpCreatePreMulSum(&ops[rank], scalars[rank].data(), ncclFloat32, ncclScalarDevice,
                                        ranks.comms[rank]));
    scalars[0].write({3});
    scalars[1].write({4});
    ranks.group([&](int rank) {
        return ncclAllReduce(buffers[rank].data(), buffers[rank].data(), ones.size(), ncclFloat32, ops[rank],
                             ranks.comms[rank], ranks.streams[rank].handle);
    });
    ranks.finish();
    for (const Floats& buffer : buffers) CHECK(buffer.read() == std::vector<float>(ones.size(), 7));
    for (int rank = 0; rank < 2; ++rank) demand(ncclRedOpDestroy(ops[rank], ranks.comms[rank]));
}

TEST_CASE("messages, puts and signals on device memory arrive in the order of their streams", "[nccl]") {
    const Ranks ranks;
    const Floats from[] = {{0, ones}, {1, twos}}, to[] = {{0, std::vector<float>(1000)}, {1, std::vector<float>(1000)}};
    demand(ncclGroupStart());
    for (int rank = 0; rank < 2; ++rank) {
        demand(ncclSend(from[rank].data(), 1000, ncclFloat32, 1 - rank, ranks.comms[rank], ranks.streams[rank].handle));
        demand(ncclRecv(to[rank].data(), 1000, ncclFloat32, 1 - rank, ranks.comms[rank], ranks.streams[rank].handle));
    }
    demand(ncclGroupEnd());
    ranks.finish();
    CHECK(to[0].read() == twos);
    CHECK(to[1].read() == ones);

    ncclWindow_t windows[2] = {};
    ranks.group([&](int rank) {
        return ncclCommWindowRegister(ranks.comms[rank], to[rank].data(), 1000 * sizeof(float), &windows[rank],
                                      NCCL_WIN_COLL_SYMMETRIC);
    });
    demand(ncclPutSignal(from[0].data(), 500, ncclFloat32, 1, windows[0], 500 * sizeof(float), 0, 0, 0, ranks.comms[0],
                         ranks.streams[0].handle));
    demand(ncclPutSignal(to[0].data(), 500, ncclFloat32, 1, windows[0], 0, 0, 0, 0, ranks.comms[0],
                         ranks.streams[0].handle));
    ncclWaitSignalDesc_t both{.opCnt = 2, .peer = 0, .sigIdx = 0, .ctx = 0};
    demand(ncclWaitSignal(1, &both, ranks.comms[1], ranks.streams[1].handle));
    ranks.finish();
    std::vector<float> expected = twos;
    std::fill_n(expected.begin() + 500, 500, 1.0F);
    CHECK(to[1].read() == expected);
    ranks.group([&](int rank) { return ncclCommWindowDeregister(ranks.comms[rank], windows[rank]); });
}

TEST_CASE("host memory is served on a communicator with devices", "[nccl]") {
    const Ranks ranks;
    std::vector<float> buffers[] = {ones, ones};
    ranks.group([&](int rank) {
        return ncclAllReduce(buffers[rank].data(), buffers[rank].data(), 1000, ncclFloat32, ncclSum, ranks.comms[rank],
                             nullptr);
    });
    for (const std::vector<float>& buffer : buffers) CHECK(buffer == twos);
    const Floats device(0, ones);
    CHECK_FAILS(ncclAllReduce(device.data(), buffers[0].data(), 1000, ncclFloat32, ncclSum, ranks.comms[0], nullptr),
                ncclInvalidArgument, "[");
}

TEST_CASE("a thread without a current device gets no device memory, and its rank no device", "[nccl]") {
    demand(cuCtxSetCurrent(nullptr));
    void* memory = &memory;
    CHECK_FAILS(ncclMemAlloc(&memory, 100), ncclInvalidUsage, "cudaSetDevice");
    CHECK(memory == nullptr);
    ncclUniqueId id;
    demand(ncclGetUniqueId(&id));
    ncclComm_t comm = nullptr;
    demand(ncclCommInitRank(&comm, 1, id, 0));
    int device = -1;
    CHECK_FAILS(ncclCommCuDevice(comm, &device), ncclInvalidUsage, "[gpu.unavailable]");
    demand(ncclCommDestroy(comm));
}

}  // namespace weft::internal::test
