// Data-parallel training on device memory, on the fake driver: ranks are threads, with a stream of the caller's each.
#include <weft/train.h>

#include <cstring>

#include "tests/device/ranks.hpp"
#include "tests/folder.hpp"
#include "tests/train/trained_rank.hpp"

namespace weft::internal::test {

namespace {

constexpr size_t counts[] = {33, 1000, 0, 7};
constexpr int parameters = 4;

weftTrainDdpConfig_t small_buckets() {
    weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
    config.bucketCapBytes = 100;
    return config;
}

// A model of float32 on a device. Every second parameter has memory of its own for its gradient.
class DeviceRank {
  public:
    DeviceRank(const Ranks& ranks, int rank, const weftTrainDdpConfig_t& config)
        : rank_(rank), device_(ranks.placing[size_t(rank)]), current_(device_), stream_(*ranks.streams[size_t(rank)]) {
        weftTrainTensor_t tensors[parameters];
        const char* const names[] = {"a", "b", "c", "d"};
        for (int p = 0; p < parameters; ++p) {
            for (auto* const buffers : {&values_, &gradients_})
                buffers->push_back(std::make_unique<DeviceBuffer>(device_, 4000));
            write(*values_.back(), std::vector<float>(1000, float(10 * rank + p)));
            tensors[p] = WEFT_TRAIN_TENSOR_INITIALIZER;
            tensors[p].name = names[p];
            tensors[p].data = values_.back()->data();
            tensors[p].gradient = p % 2 == 1 ? gradients_.back()->data() : nullptr;
            tensors[p].count = counts[p];
        }
        buffer_ = std::make_unique<DeviceBuffer>(device_, 4);
        write(*buffer_, {float(100 + rank)});
        weftTrainTensor_t buffer = WEFT_TRAIN_TENSOR_INITIALIZER;
        buffer.name = "mean";
        buffer.data = buffer_->data();
        buffer.count = 1;
        demand(weftTrainDdpCreate(&ddp_, ranks.comms[size_t(rank)], tensors, parameters, &buffer, 1, &config));
    }
    DeviceRank(const DeviceRank&) = delete;
    ~DeviceRank() { (void)weftTrainDdpDestroy(ddp_); }

    weftTrainDdp_t ddp() const { return ddp_; }
    weftStream_t stream() const { return stream_.weft(); }
    void begin(weftTrainMode_t mode = weftTrainSynchronize) { demand(weftTrainDdpBegin(ddp_, mode, stream())); }
    void finish() { demand(weftTrainDdpFinish(ddp_, stream())); }
    // Writes the gradient by work on the stream, and reports it.
    void backward(int iteration, std::vector<int> order, double factor = 1) {
        for (const int p : order) {
            std::vector<float>& numbers = sent_.emplace_back(counts[p]);
            for (size_t i = 0; i < counts[p]; ++i)
                numbers[i] = float(factor * gradient_element(rank_, iteration, p, i));
            if (counts[p] > 0)
                demand(cuMemcpyAsync(CUdeviceptr(gradient(p)), CUdeviceptr(numbers.data()), counts[p] * 4,
                                     stream_.handle));
            demand(weftTrainDdpGradientReady(ddp_, p, stream()));
        }
    }
    template <class Expected>
    void expect(Expected expected, double allowed = 1e-5) {
        for (int p = 0; p < parameters; ++p) {
            std::vector<float> seen(counts[p]);
            if (counts[p] > 0)
                demand(
                    cuMemcpyAsync(CUdeviceptr(seen.data()), CUdeviceptr(gradient(p)), counts[p] * 4, stream_.handle));
            stream_.finish();
            for (size_t i = 0; i < counts[p]; ++i)
                if (std::abs(seen[i] - expected(p, i)) > allowed)
                    throw std::runtime_error("parameter " + std::to_string(p) + " has " + std::to_string(seen[i]) +
                                             ", not " + std::to_string(expected(p, i)));
        }
    }
    // By work on the stream.
    void set_value(int p, float number) {
        sent_.push_back({number});
        demand(cuMemcpyAsync(CUdeviceptr(values_[size_t(p)]->data()), CUdeviceptr(sent_.back().data()), 4,
                             stream_.handle));
    }
    float value_in_stream(int p) const {
        float seen = 0;
        demand(cuMemcpyAsync(CUdeviceptr(&seen), CUdeviceptr(values_[size_t(p)]->data()), 4, stream_.handle));
        stream_.finish();
        return seen;
    }
    float value(int p) const { return first(*values_[size_t(p)]); }
    float buffer() const { return first(*buffer_); }

  private:
    void* gradient(int p) const {
        void* memory = nullptr;
        demand(weftTrainDdpGetGradient(ddp_, p, &memory));
        return memory;
    }
    static void write(const DeviceBuffer& buffer, const std::vector<float>& numbers) {
        buffer.write(numbers.data(), numbers.size() * 4);
    }
    static float first(const DeviceBuffer& buffer) {
        float number = 0;
        memcpy(&number, buffer.read(4).data(), 4);
        return number;
    }

    int rank_, device_;
    Current current_;
    const Stream& stream_;
    std::vector<std::unique_ptr<DeviceBuffer>> values_, gradients_;
    std::unique_ptr<DeviceBuffer> buffer_;
    std::vector<std::vector<float>> sent_;  // until the stream has read them
    weftTrainDdp_t ddp_ = nullptr;
};

double sum(int ranks, int iteration, int p, size_t i) {
    double sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += gradient_element(rank, iteration, p, i);
    return sum;
}

weftResult_t sum_hook(const weftTrainBucket_t* bucket, void*) {
    return weftAllReduce(bucket->data, bucket->data, bucket->count, bucket->datatype, weftSum, bucket->comm,
                         bucket->stream);
}

}  // namespace

TEST_CASE("gradients on devices are averaged in the order of the caller's stream", "[train]") {
    for (const int size : {1, 2, 3}) {
        const Ranks ranks(spread(size));
        check_on_threads(size, [&](int own) {
            DeviceRank rank(ranks, own, small_buckets());
            if (rank.value(3) != 3 || rank.buffer() != 100) throw std::runtime_error("not the values of rank 0");
            for (int iteration = 0; iteration < 4; ++iteration) {
                rank.begin(weftTrainAccumulate);
                rank.backward(50, {0, 1, 2, 3});
                rank.finish();
                rank.begin();
                rank.backward(iteration, own == 0 ? std::vector<int>{3, 2, 1, 0} : std::vector<int>{1, 0, 3, 2});
                rank.finish();
                rank.expect([&](int p, size_t i) { return sum(size, iteration, p, i) / size; });
            }
        });
        ranks.check_healthy();
    }
}

TEST_CASE("unused parameters, joined ranks and a caller's hook work on devices", "[train]") {
    const Ranks ranks(spread(3));
    for (const weftTrainHook_t hook : {weftTrainHook_t(nullptr), weftTrainHook_t(sum_hook)})
        check_on_threads(3, [&](int own) {
            weftTrainDdpConfig_t config = small_buckets();
            config.findUnused = 1;
            config.join = 1;
            config.hook = hook;
            DeviceRank rank(ranks, own, config);
            for (int iteration = 0; iteration < 1 + own; ++iteration) {
                rank.begin();
                rank.backward(iteration, own == 2 ? std::vector<int>{3, 1} : std::vector<int>{3});
                rank.finish();
                rank.expect([&](int p, size_t i) {
                    double all = 0;
                    if (p == 1) all = gradient_element(2, iteration, p, i);
                    if (p == 3)
                        for (int r = iteration; r < 3; ++r) all += gradient_element(r, iteration, p, i);
                    return hook ? all : all / 3;
                });
            }
            // Work of the stream that changes a parameter of the rank that trained last, before and after the call.
            const float last = float(1000 + own);
            rank.set_value(0, last);
            demand(weftTrainDdpJoin(rank.ddp(), rank.stream()));
            if (rank.value_in_stream(0) != 1002) throw std::runtime_error("not the values of rank 2");
        });
    ranks.check_healthy();
}

TEST_CASE("fp16 and bf16 hooks convert on devices", "[train]") {
    constexpr double third = 1.0 / 3;
    for (const int size : {1, 2, 3}) {
        const Ranks ranks(spread(size));
        for (const weftDataType_t type : {weftFloat16, weftBfloat16})
            check_on_threads(size, [&](int own) {
                weftTrainDdpConfig_t config = small_buckets();
                config.hook = type == weftFloat16 ? weftTrainHookFloat16 : weftTrainHookBfloat16;
                DeviceRank rank(ranks, own, config);
                for (int iteration = 0; iteration < 3; ++iteration) {
                    rank.begin();
                    rank.backward(iteration, {3, 2, 1, 0}, third);
                    rank.finish();
                    // One rank gets what was sent, to the bit.
                    rank.expect(
                        [&](int p, size_t i) {
                            const float exact = float(third * sum(size, iteration, p, i) / size);
                            if (size > 1) return double(exact);
                            uint16_t sent = 0;
                            set_number(&sent, type, 0, exact);
                            return number_at(&sent, type, 0);
                        },
                        size > 1 ? 0.04 : 1e-9);
                }
            });
        ranks.check_healthy();
    }
}

TEST_CASE("other memory, streams and hooks than a device's are refused", "[train]") {
    const Ranks ranks(spread(1));
    check_on_threads(1, [&](int own) {
        DeviceRank rank(ranks, own, small_buckets());
        weftHostStream_t host = nullptr;
        demand(weftStreamCreate(&host));
        CHECK(weftTrainDdpBegin(rank.ddp(), weftTrainSynchronize, host) == weftInvalidArgument);
        CHECK_ERROR(last_error(), "argument.stream");
        demand(weftStreamDestroy(host));
        const Stream captured(0);
        demand(cuStreamBeginCapture(captured.handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        CHECK(weftTrainDdpBegin(rank.ddp(), weftTrainSynchronize, captured.weft()) == weftInvalidUsage);
        CHECK_ERROR(last_error(), "stream.capture");
        CUgraph graph = nullptr;
        demand(cuStreamEndCapture(captured.handle, &graph));
        demand(cuGraphDestroy(graph));
        if (devices() > 1) {
            const Stream other(1);
            CHECK(weftTrainDdpBegin(rank.ddp(), weftTrainSynchronize, other.weft()) == weftInvalidArgument);
            CHECK_ERROR(last_error(), "argument.stream");
        }
        // The object lives on.
        weftResult_t state = weftInternalError;
        demand(weftTrainDdpGetAsyncError(rank.ddp(), &state));
        CHECK(state == weftSuccess);
        rank.begin();
        rank.backward(0, {0, 1, 2, 3});
        rank.finish();
        const DeviceBuffer device(0, 400);
        std::vector<float> numbers(100);
        weftTrainTensor_t tensors[2] = {WEFT_TRAIN_TENSOR_INITIALIZER, WEFT_TRAIN_TENSOR_INITIALIZER};
        tensors[0].name = "a";
        tensors[0].data = device.data();
        tensors[1].name = "b";
        tensors[1].data = numbers.data();
        tensors[0].count = tensors[1].count = 100;
        weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
        weftTrainDdp_t ddp = nullptr;
        CHECK(weftTrainDdpCreate(&ddp, ranks.comms[0], tensors, 2, nullptr, 0, &config) == weftInvalidArgument);
        CHECK_ERROR(last_error(), "argument.device");
        weftTrainCompressor_t compressor = nullptr;
        const weftTrainCompressorConfig_t settings = WEFT_TRAIN_COMPRESSOR_CONFIG_INITIALIZER;
        demand(weftTrainCompressorCreate(&compressor, &settings));
        config.hook = weftTrainHookCompress;
        config.hookContext = compressor;
        demand(weftTrainDdpCreate(&ddp, ranks.comms[0], tensors, 1, nullptr, 0, &config));
        demand(weftTrainDdpDestroy(ddp));
        demand(weftTrainCompressorDestroy(compressor));
    });
}

TEST_CASE("the model lies on the communicator's device", "[train]") {
    if (devices() < 2) return;
    const Ranks ranks({0});
    const DeviceBuffer other(1, 400);
    weftTrainTensor_t tensor = WEFT_TRAIN_TENSOR_INITIALIZER;
    tensor.name = "a";
    tensor.data = other.data();
    tensor.count = 100;
    weftTrainDdp_t ddp = nullptr;
    CHECK(weftTrainDdpCreate(&ddp, ranks.comms[0], &tensor, 1, nullptr, 0, nullptr) == weftInvalidArgument);
    CHECK_ERROR(last_error(), "argument.device");
}

TEST_CASE("checkpoints and copies in memory take device memory in a thread without a context", "[train]") {
    const Ranks ranks({0});
    const DeviceBuffer device(0, 400);
    const Folder folder;
    weftTrainBox_t box = WEFT_TRAIN_BOX_INITIALIZER;
    const size_t shape = 100;
    box.name = "a";
    box.data = device.data();
    box.dims = 1;
    box.shape = &shape;
    weftTrainCheckpoint_t checkpoint = nullptr;
    demand(weftTrainCheckpointCreate(&checkpoint, ranks.comms[0]));
    CHECK(weftTrainCheckpointSave(checkpoint, (folder.path / "saved").c_str(), &box, 1, nullptr, 0,
                                  weftTrainSaveBlocking) == weftSuccess);
    demand(weftTrainCheckpointDestroy(checkpoint));
    weftTrainReplica_t replica = nullptr;
    demand(weftTrainReplicaCreate(&replica, 1, 1));
    CHECK(weftTrainReplicaSave(replica, ranks.comms[0], 1, &box, 1, nullptr, 0) == weftSuccess);
    demand(weftTrainReplicaDestroy(replica));
}

}  // namespace weft::internal::test
