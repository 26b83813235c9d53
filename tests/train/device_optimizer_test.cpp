// Optimizers, norms and the loss scale on device memory, on the fake driver: bit for bit as in host memory.
#include <weft/train.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/device/ranks.hpp"

namespace weft::internal::test {

namespace {

constexpr size_t counts[] = {33, 10'000, 0, 4096, 1};
constexpr int part_count = 30;  // more than one launch takes

// The same random parts in host memory and on a device.
class Twins {
  public:
    Twins(int device, uint32_t seed) : random_(seed) {
        for (int p = 0; p < part_count; ++p) {
            const size_t count = counts[size_t(p) % std::size(counts)];
            for (int side = 0; side < 2; ++side) {
                weftTrainPart_t part = WEFT_TRAIN_PART_INITIALIZER;
                part.name = "part";
                part.count = count;
                part.copyType = p % 2 ? weftFloat16 : weftBfloat16;
                part.gradientType = p % 3 == 0 ? weftFloat32 : p % 3 == 1 ? weftFloat16 : weftBfloat16;
                part.axes = unsigned(p % 2);
                parts_[side].push_back(part);
            }
            values_.push_back(numbers(count, weftFloat32));
            gradients_.push_back(numbers(count, parts_[0].back().gradientType));
            copies_.emplace_back(2 * count);
            for (const auto* bytes : {&values_.back(), &copies_.back(), &gradients_.back()}) {
                buffers_.push_back(std::make_unique<DeviceBuffer>(device, bytes->size() + 1));
                buffers_.back()->write(bytes->data(), bytes->size());
            }
            parts_[0].back().values = reinterpret_cast<float*>(values_.back().data());
            parts_[0].back().copy = p % 4 ? copies_.back().data() : nullptr;
            parts_[0].back().gradient = gradients_.back().data();
            parts_[1].back().values = static_cast<float*>(buffer(p, 0).data());
            parts_[1].back().copy = p % 4 ? buffer(p, 1).data() : nullptr;
            parts_[1].back().gradient = buffer(p, 2).data();
        }
    }

    const std::vector<weftTrainPart_t>& parts(bool on_device) const { return parts_[on_device]; }
    void new_gradients() {
        for (int p = 0; p < part_count; ++p) {
            const auto fresh = numbers(parts_[0][size_t(p)].count, parts_[0][size_t(p)].gradientType);
            std::copy(fresh.begin(), fresh.end(), gradients_[size_t(p)].begin());
            buffer(p, 2).write(fresh.data(), fresh.size());
        }
    }
    // Of float32 part 0, on both sides.
    void set_gradient(float number) {
        memcpy(gradients_[0].data() + 40, &number, 4);
        buffer(0, 2).write(gradients_[0].data(), gradients_[0].size());
    }
    // Throws if any bit differs.
    void compare(const char* when) const {
        for (int p = 0; p < part_count; ++p) {
            const std::vector<std::byte>* const host[] = {&values_[size_t(p)], &copies_[size_t(p)],
                                                          &gradients_[size_t(p)]};
            for (int kind = 0; kind < 3; ++kind)
                if (!host[kind]->empty() &&
                    memcmp(buffer(p, kind).read(host[kind]->size()).data(), host[kind]->data(), host[kind]->size()))
                    throw std::runtime_error(std::string(when) + ": array " + std::to_string(kind) + " of part " +
                                             std::to_string(p));
        }
    }

  private:
    DeviceBuffer& buffer(int part, int kind) const { return *buffers_[size_t(3 * part + kind)]; }
    // Small enough for any type.
    std::vector<std::byte> numbers(size_t count, weftDataType_t type) {
        std::vector<std::byte> bytes(count * (type == weftFloat32 ? 4 : 2));
        for (size_t i = 0; i < count; ++i) {
            const float number = std::ldexp(float(random_()), -31) - 1;
            const uint16_t half = uint16_t((type == weftFloat16 ? 0x2c00u : 0x3d00u) | (random_() & 0x80ffu));
            if (type == weftFloat32)
                memcpy(bytes.data() + 4 * i, &number, 4);
            else
                memcpy(bytes.data() + 2 * i, &half, 2);
        }
        return bytes;
    }

    std::mt19937 random_;
    std::vector<weftTrainPart_t> parts_[2];
    std::vector<std::vector<std::byte>> values_, copies_, gradients_;
    std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
};

weftTrainOptimizerConfig_t config_of(int algorithm) {
    weftTrainOptimizerConfig_t config = WEFT_TRAIN_OPTIMIZER_CONFIG_INITIALIZER;
    config.algorithm = weftTrainAlgorithm_t(algorithm);
    config.weightDecay = 0.01;
    config.momentum = algorithm == weftTrainLars ? 0.9 : 0;
    return config;
}

void train(const Ranks& ranks, int rank, const weftTrainOptimizerConfig_t& config) {
    const Current current(ranks.placing[size_t(rank)]);
    const Stream& stream = *ranks.streams[size_t(rank)];
    Twins twins(ranks.placing[size_t(rank)], seed() + uint32_t(rank));
    weftTrainOptimizer_t optimizers[2] = {};
    for (const bool on_device : {false, true})
        demand(weftTrainOptimizerCreate(&optimizers[on_device], twins.parts(on_device).data(), part_count,
                                        &ranks.comms[size_t(rank)], 1, &config));
    for (int step = 0; step < 3; ++step) {
        twins.new_gradients();
        for (const bool on_device : {false, true})
            demand(weftTrainOptimizerStep(optimizers[on_device], 0.01, 0.5, 0, on_device ? stream.weft() : nullptr));
        stream.finish();
        twins.compare("step");
    }
    for (const weftTrainOptimizer_t optimizer : optimizers) demand(weftTrainOptimizerDestroy(optimizer));
}

void measure(const Ranks& ranks, int rank) {
    const Current current(ranks.placing[size_t(rank)]);
    const Stream& stream = *ranks.streams[size_t(rank)];
    Twins twins(ranks.placing[size_t(rank)], seed() + uint32_t(rank));
    const weftComm_t comm = ranks.comms[size_t(rank)];
    weftTrainScaler_t scaler = nullptr;
    demand(weftTrainScalerCreate(&scaler, &comm, 1, nullptr));
    for (const float wrong : {1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        twins.set_gradient(rank == 1 || std::isfinite(wrong) ? wrong : 1);
        for (const double p : {1.0, 2.0, 3.0, double(INFINITY)}) {
            double norms[2] = {};
            for (const bool on_device : {false, true})
                demand(weftTrainGradientNorm(twins.parts(on_device).data(), part_count, &comm, 1, p, &norms[on_device],
                                             on_device ? stream.weft() : nullptr));
            const bool same = std::isfinite(norms[0]) ? std::abs(norms[1] / norms[0] - 1) < 1e-12
                                                      : std::isnan(norms[0]) == std::isnan(norms[1]);
            // The bad gradient of rank 1 is in a part that is not sharded: other ranks do not see it in their norms.
            if (!same || (rank == 1 && std::isfinite(norms[1]) != std::isfinite(wrong)))
                throw std::runtime_error("the norm is " + std::to_string(norms[1]));
        }
        for (const bool on_device : {false, true}) {
            int found = -1;
            demand(weftTrainScalerUnscale(scaler, twins.parts(on_device).data(), part_count, 0, &found,
                                          on_device ? stream.weft() : nullptr));
            if (found != !std::isfinite(wrong)) throw std::runtime_error("found " + std::to_string(found));
        }
    }
    twins.set_gradient(1);
    for (const bool on_device : {false, true}) {
        const weftStream_t of = on_device ? stream.weft() : nullptr;
        int found = 0;
        demand(weftTrainClipGradients(twins.parts(on_device).data(), part_count, 8, 2, 1, of));
        // Of the float32 part only: float16 is not divided.
        demand(weftTrainScalerUnscale(scaler, twins.parts(on_device).data(), 1, 1, &found, of));
    }
    stream.finish();
    twins.compare("scaled");
    demand(weftTrainScalerDestroy(scaler));
}

}  // namespace

TEST_CASE("optimizers on devices give the bits of the host", "[train]") {
    for (int algorithm = weftTrainSgd; algorithm <= weftTrainLars; ++algorithm) {
        CAPTURE(algorithm);
        const Ranks ranks({0, 1});
        check_on_threads(2, [&](int rank) { train(ranks, rank, config_of(algorithm)); });
    }
}

TEST_CASE("norms and scales of gradients on devices are those of the host", "[train]") {
    const Ranks ranks({0, 1});
    check_on_threads(2, [&](int rank) { measure(ranks, rank); });
}

TEST_CASE("parts in two memories, and streams of another kind, are refused", "[train]") {
    const Ranks ranks({0});
    const Current current(0);
    Twins twins(0, 1);
    weftTrainPart_t mixed[] = {twins.parts(false)[0], twins.parts(true)[0]};
    weftTrainOptimizer_t optimizer = nullptr;
    CHECK_REFUSED(weftTrainOptimizerCreate(&optimizer, mixed, 2, ranks.comms.data(), 1, nullptr), nullptr,
                  "argument.device");
    weftStream_t host_stream = nullptr;
    demand(weftStreamCreate(&host_stream));
    demand(weftTrainOptimizerCreate(&optimizer, &mixed[1], 1, ranks.comms.data(), 1, nullptr));
    CHECK_REFUSED(weftTrainOptimizerStep(optimizer, 1, 1, 0, host_stream), nullptr, "argument.stream");
    CHECK_REFUSED(weftTrainOptimizerSetGradient(optimizer, 0, mixed[0].gradient), nullptr, "argument.device");
    demand(weftTrainOptimizerDestroy(optimizer));
    demand(weftTrainOptimizerCreate(&optimizer, &mixed[0], 1, ranks.comms.data(), 1, nullptr));
    CHECK_REFUSED(weftTrainOptimizerStep(optimizer, 1, 1, 0, ranks.streams[0]->weft()), nullptr, "argument.stream");
    demand(weftTrainOptimizerDestroy(optimizer));
    demand(weftStreamDestroy(host_stream));
    weftTrainOptimizerConfig_t offloaded = WEFT_TRAIN_OPTIMIZER_CONFIG_INITIALIZER;
    offloaded.algorithm = weftTrainAdam;
    offloaded.offloadFolder = "/tmp";
    CHECK_REFUSED(weftTrainOptimizerCreate(&optimizer, &mixed[1], 1, ranks.comms.data(), 1, &offloaded), nullptr,
                  "argument.device");
}

TEST_CASE("states on a device are copied to host memory and back", "[train]") {
    const Ranks ranks({0});
    const Current current(0);
    Twins twins(0, 1);
    const weftTrainPart_t part = twins.parts(true)[0];
    weftTrainOptimizerConfig_t config = WEFT_TRAIN_OPTIMIZER_CONFIG_INITIALIZER;
    config.algorithm = weftTrainAdam;
    weftTrainOptimizer_t optimizer = nullptr;
    demand(weftTrainOptimizerCreate(&optimizer, &part, 1, ranks.comms.data(), 1, &config));
    std::vector<float> written(part.count), read(part.count, -1), zeros(part.count, -1);
    for (size_t i = 0; i < written.size(); ++i) written[i] = float(i) / 7;
    demand(weftTrainOptimizerWriteState(optimizer, 0, 1, written.data()));
    demand(weftTrainOptimizerReadState(optimizer, 0, 1, read.data()));
    demand(weftTrainOptimizerReadState(optimizer, 0, 0, zeros.data()));
    CHECK(read == written);
    CHECK(zeros == std::vector<float>(part.count, 0));
    demand(weftTrainOptimizerDestroy(optimizer));
}

TEST_CASE("a thread without a context and without axes uses the device that its arrays lie on", "[train]") {
    const int device = devices() - 1;
    const Ranks ranks({device});
    Twins twins(device, 1);
    weftTrainOptimizerConfig_t config = config_of(weftTrainAdam);
    double norms[2] = {};
    for (const bool on_device : {false, true}) {
        weftTrainOptimizer_t optimizer = nullptr;
        std::vector<weftTrainPart_t> parts = twins.parts(on_device);
        for (weftTrainPart_t& each : parts) each.axes = 0;
        const auto count = parts.size();
        const weftStream_t of = on_device ? ranks.streams[0]->weft() : nullptr;
        demand(weftTrainOptimizerCreate(&optimizer, parts.data(), count, nullptr, 0, &config));
        demand(weftTrainGradientNorm(parts.data(), count, nullptr, 0, 2, &norms[on_device], of));
        demand(weftTrainClipGradients(parts.data(), count, norms[on_device], norms[on_device] / 2, 1, of));
        demand(weftTrainOptimizerSetGradient(optimizer, 0, parts[0].gradient));
        demand(weftTrainOptimizerStep(optimizer, 0.01, 0.5, 0, of));
        ranks.streams[0]->finish();
        demand(weftTrainOptimizerDestroy(optimizer));
    }
    CHECK(std::abs(norms[1] / norms[0] - 1) < 1e-12);
    twins.compare("step");
    weftTrainBatchNorm_t layer = WEFT_TRAIN_BATCH_NORM_INITIALIZER;
    layer.batch = layer.channels = layer.inner = 1;
    float mean = 0, invstd = 0;
    CHECK_REFUSED(weftTrainBatchNormForward(&layer, twins.parts(true)[0].values, &mean, &invstd, nullptr,
                                            ranks.comms[0], nullptr),
                  nullptr, "argument.device");
}

}  // namespace weft::internal::test
