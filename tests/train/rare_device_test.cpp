// Local SGD, DiLoCo, the parameter server and batch norm on devices, on the fake driver. Steps do not wait, servers may lie
// in another memory than workers, and batch norm is that of host memory.
#include <cuda.h>
#include <weft/train.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <random>

#include "src/base/arithmetic.hpp"
#include "tests/amount.hpp"
#include "tests/error.hpp"
#include "tests/train/served_rank.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::train;

namespace {

// The stream's work waits until the object ends.
class HeldStream {
  public:
    explicit HeldStream(weftStream_t stream) {
        const auto wait = [](void* given) {
            const std::unique_ptr<Flag> flag(static_cast<Flag*>(given));
            (*flag)->wait(false);
        };
        auto flag = std::make_unique<Flag>(go_);
        if (cuLaunchHostFunc(static_cast<CUstream>(stream), wait, flag.get()) != CUDA_SUCCESS)
            throw std::runtime_error("no function in the stream");
        (void)flag.release();
    }
    HeldStream(const HeldStream&) = delete;
    ~HeldStream() {
        *go_ = true;
        go_->notify_all();
    }

  private:
    using Flag = std::shared_ptr<std::atomic<bool>>;  // of this object, and of the function
    Flag go_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace

TEST_CASE("a step on a device that begins a reduction or has none waits for no work") {
    CHECK(in_program_memory(2, [](weftComm_t comm, int rank) -> std::string {
              LocalRank own({{weftFloat32, 33}}, [](int, size_t) { return 1.0; });
              own.place(rank);
              weftTrainLocalConfig_t config = WEFT_TRAIN_LOCAL_CONFIG_INITIALIZER;
              config.method = weftTrainDiloco;
              config.period = 3;
              config.delay = 2;
              weftTrainLocal_t local = nullptr;
              need(weftTrainLocalCreate(&local, comm, own.tensors.data(), 1, &config));
              for (int step = 0; step < 5; ++step) need(weftTrainLocalStep(local, nullptr, own.placed.stream()));
              // Step 5 begins a reduction, step 6 does nothing, and step 7 uses the result. A step that waited for the
              // stream would not end.
              int changed = 1;
              {
                  const HeldStream held(own.placed.stream());
                  own.set(0, 0, 3 + 2 * rank);
                  own.send();
                  for (int step = 5; step < 7; ++step) need(weftTrainLocalStep(local, &changed, own.placed.stream()));
                  if (changed) return "a result was used too early";
              }
              need(weftTrainLocalStep(local, &changed, own.placed.stream()));
              own.receive();
              need(weftTrainLocalDestroy(local));
              // The mean change is 1 - 4. The outer step is SGD with Nesterov momentum.
              return changed && std::fabs(own.at(0, 0) - (1 + 0.7 * 1.9 * 3)) < 1e-5 ? ""
                                                                                     : std::to_string(own.at(0, 0));
          }) == no_error(2));
}

TEST_CASE("workers on devices have servers in host memory, and the other way round") {
    for (const bool servers_on_device : {false, true}) {
        CAPTURE(servers_on_device);
        CHECK(in_program_memory(3, [&](weftComm_t comm, int rank) {
                  ServedRank own(model_of_all_types(), [&](int p, size_t i) { return first_value(p, i) + 100 * rank; });
                  if ((rank == 0) == servers_on_device) own.place(rank);
                  if (!own.create(comm, server_config())) return own.wrong;
                  own.receive();
                  own.expect([](size_t p, size_t i) { return first_value(int(p), i); });
                  if (rank == 0) {
                      own.serve();
                      own.expect([](size_t p, size_t i) { return first_value(int(p), i) - 4; });
                      return own.wrong;
                  }
                  own.set_gradients([](size_t, size_t) { return 1; });
                  for (int step = 0; step < 2; ++step) {
                      own.push();
                      own.pull();
                  }
                  own.finish();
                  return own.wrong;
              }) == no_error(3));
    }
}

TEST_CASE("rare communication on devices refuses mixed memory and streams of the host") {
    const auto ids = in_program_memory(2, [](weftComm_t comm, int rank) -> std::string {
        LocalRank own({{weftFloat32, 3}, {weftFloat32, 2}}, [](int, size_t) { return 1.0; });
        own.place(rank);
        void* const on_device = own.tensors[1].data;
        own.tensors[1].data = own.values[1].data();
        weftTrainLocalConfig_t config = WEFT_TRAIN_LOCAL_CONFIG_INITIALIZER;
        config.period = 1;
        weftTrainLocal_t local = nullptr;
        (void)weftTrainLocalCreate(&local, comm, own.tensors.data(), 2, &config);
        std::string seen = newest_id();
        // The ranks differ in the memory of the model.
        LocalRank other({{weftFloat32, 3}}, [](int, size_t) { return 1.0; });
        if (rank == 1) other.place(rank);
        (void)weftTrainLocalCreate(&local, comm, other.tensors.data(), 1, &config);
        seen += " " + newest_id();
        own.tensors[1].data = on_device;
        need(weftTrainLocalCreate(&local, comm, own.tensors.data(), 2, &config));
        weftStream_t stream = nullptr;
        need(weftStreamCreate(&stream));
        (void)weftTrainLocalStep(local, nullptr, stream);
        seen += " " + newest_id();
        need(weftStreamDestroy(stream));
        need(weftTrainLocalStep(local, nullptr, own.placed.stream()));
        need(weftBarrier(comm, nullptr));
        need(weftTrainLocalDestroy(local));
        return seen;
    });
    CHECK(ids == std::vector<std::string>(2, "argument.device train.model argument.stream"));
}

namespace {

// One rank's part of a batch, and its results, in either memory.
class NormRank {
  public:
    NormRank(int rank, bool on_device, weftTrainBatchNorm_t layer, uint32_t seed)
        : layer_(layer), space_(space_of_rank(rank, on_device)) {
        std::mt19937 random(seed);
        const size_t count = layer.batch * layer.channels * layer.inner;
        for (Bytes* const bytes : {&x_, &dy_}) {
            bytes->resize(8 * count);
            for (size_t i = 0; i < count; ++i)
                set_number(bytes->data(), layer.datatype, i,
                           std::ldexp(double(random()), -31) + double(i / layer.inner % layer.channels));
        }
        const size_t floats = layer.channels * sizeof(float);
        layer_.runningMean = static_cast<float*>(keep(Bytes(floats)));
        layer_.runningVariance = static_cast<float*>(keep(Bytes(floats)));
        mean_ = static_cast<float*>(keep(Bytes(floats)));
        invstd_ = static_cast<float*>(keep(Bytes(floats)));
        own_ = static_cast<float*>(keep(Bytes(2 * floats)));
        all_ = static_cast<float*>(keep(Bytes(2 * floats)));
        count_ = static_cast<uint64_t*>(keep(Bytes(sizeof(uint64_t))));
        device_x_ = count ? keep(x_) : nullptr;
        device_dy_ = count ? keep(dy_) : nullptr;
        need(space_->synchronize());
    }

    void run(weftComm_t comm, uint64_t* count) {
        need(weftTrainBatchNormForward(&layer_, device_x_, mean_, invstd_, count, comm, space_->stream()));
        need(weftTrainBatchNormBackward(&layer_, device_x_, device_dy_, mean_, own_, all_, comm, space_->stream()));
    }
    weftStream_t stream() const { return space_->stream(); }
    uint64_t* count() const { return count_; }
    uint64_t read_count() {
        uint64_t count = 0;
        need(space_->copy(&count, count_, sizeof count));
        need(space_->synchronize());
        return count;
    }
    std::vector<float> results() {
        std::vector<float> all;
        for (const auto& [memory, count] : {std::pair(layer_.runningMean, 1u),
                                            {layer_.runningVariance, 1u},
                                            {mean_, 1u},
                                            {invstd_, 1u},
                                            {own_, 2u},
                                            {all_, 2u}}) {
            const size_t begin = all.size(), size = count * layer_.channels;
            all.resize(begin + size);
            need(space_->copy(all.data() + begin, memory, size * sizeof(float)));
        }
        need(space_->synchronize());
        return all;
    }

  private:
    void* keep(const Bytes& bytes) {
        kept_.push_back(need(space_->allocate(bytes.size())));
        need(space_->copy(kept_.back().get(), bytes.data(), bytes.size()));
        need(space_->synchronize());
        return kept_.back().get();
    }

    weftTrainBatchNorm_t layer_;
    std::unique_ptr<MemorySpace> space_;
    Bytes x_, dy_;
    std::vector<std::shared_ptr<void>> kept_;
    void *device_x_, *device_dy_;
    float *mean_, *invstd_, *own_, *all_;
    uint64_t* count_;
};

weftTrainBatchNorm_t layer_of(size_t batch, size_t channels, size_t inner, weftDataType_t type) {
    weftTrainBatchNorm_t layer = WEFT_TRAIN_BATCH_NORM_INITIALIZER;
    layer.batch = batch;
    layer.channels = channels;
    layer.inner = inner;
    layer.datatype = type;
    return layer;
}

}  // namespace

TEST_CASE("batch norm on devices is that of host memory, also with empty ranks and long channels") {
    const std::pair<size_t, size_t> shapes[] = {{1, 1}, {3, 1}, {5, 7}, {1, 20'000}, {300, 3}};
    for (const auto& [channels, inner] : shapes)
        for (const auto type : {weftFloat32, weftFloat16, weftBfloat16}) {
            CAPTURE(channels, inner, int(type));
            const size_t batches[] = {2, 0, 3};
            const auto run = [&, channels = channels, inner = inner](weftComm_t comm, int rank) -> std::string {
                const auto layer = layer_of(batches[rank], channels, inner, type);
                NormRank host(rank, false, layer, uint32_t(rank)), device(rank, true, layer, uint32_t(rank));
                uint64_t on_host = 0, of_device = 0;
                host.run(comm, &on_host);
                device.run(comm, &of_device);
                if (on_host != 5 * inner || of_device != on_host) return "the count";
                const auto expected = host.results(), seen = device.results();
                for (size_t i = 0; i < expected.size(); ++i)
                    if (!(std::fabs(seen[i] - expected[i]) <= 1e-6 * std::max(1.f, std::fabs(expected[i]))))
                        return std::to_string(seen[i]) + ", not " + std::to_string(expected[i]);
                return "";
            };
            CHECK(in_program_memory(3, run) == no_error(3));
        }
}

TEST_CASE("batch norm on a device waits for no work, and its count may stay there") {
    CHECK(in_program_memory(2, [](weftComm_t comm, int rank) -> std::string {
              NormRank own(rank, true, layer_of(size_t(2 + rank), 3, 2, weftFloat32), 1);
              own.run(comm, own.count());
              if (own.read_count() != 10) return "the count";
              {
                  const HeldStream held(own.stream());
                  own.run(comm, own.count());
                  own.run(comm, nullptr);
              }
              return own.read_count() == 10 ? "" : "the second count";
          }) == no_error(2));
}

TEST_CASE("batch norm on a device refuses wrong memory, streams and counts") {
    const auto ids = in_program_memory(2, [](weftComm_t comm, int rank) -> std::string {
        const auto layer = layer_of(size_t(1 - rank), 1, 1, weftFloat32);
        auto space = space_of_rank(rank, true), other = space_of_rank(rank + 1, true);
        const auto memory = need(space->allocate(64)), far = need(other->allocate(64));
        float* const floats = static_cast<float*>(memory.get());
        float on_host = 0;
        uint64_t count = 0;
        std::string seen;
        const auto forward = [&](float* mean, float* invstd, uint64_t* to, weftStream_t stream) {
            seen +=
                weftTrainBatchNormForward(&layer, floats, mean, invstd, to, comm, stream) ? newest_id() + " " : "+ ";
        };
        forward(floats + 1, &on_host, nullptr, space->stream());
        forward(static_cast<float*>(far.get()), static_cast<float*>(far.get()) + 1, nullptr, other->stream());
        forward(&on_host, &on_host, static_cast<uint64_t*>(memory.get()) + 4, nullptr);
        forward(floats + 1, floats + 2, nullptr, other->stream());
        forward(floats + 1, floats + 2, &count, space->stream());  // one element
        forward(floats + 1, floats + 2, nullptr, space->stream());
        need(space->copy(&on_host, floats + 1, sizeof on_host));
        need(space->synchronize());
        return seen + (std::isnan(on_host) ? "NaN" : "a number");
    });
    CHECK(ids == std::vector<std::string>(2,
                                          "argument.device argument.device argument.device argument.stream "
                                          "argument.count + NaN"));
}
