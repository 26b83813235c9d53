// 1-bit LAMB: the hook and the optimizer against a serial computation of all ranks, its learning, and its state.
#include <weft/train.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

#include "src/train/hooks/compressed_exchange.hpp"
#include "tests/comm/on_threads.hpp"
#include "tests/error.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::train;

namespace {

constexpr size_t counts[2] = {37, 10};
constexpr float beta1 = 0.9f, beta2 = 0.99f, epsilon = 1e-6f, decay = 0.1f;

void must(weftResult_t result) {
    if (result != weftSuccess) throw std::runtime_error(weftGetLastError(nullptr));
}
void demand(bool right, const std::string& what) {
    if (!right) throw std::runtime_error(what);
}

float noise(int step, int rank, size_t layer, size_t i) {
    std::minstd_rand random(uint32_t(step * 7919 + rank * 104729) + uint32_t(layer * 433 + i * 31) + 1);
    random.discard(3);
    // The layers have gradients of different sizes, and later ones are large: factors reach their bounds.
    const float size = (layer == 0 ? 1.0f : 0.02f) * (step >= 12 && step < 1000 ? 20.0f : 1.0f);
    return float(double(random()) / double(random.max()) - 0.4) * size;
}

weftTrainCompressorConfig_t lamb_hook(int exact) {
    weftTrainCompressorConfig_t config = WEFT_TRAIN_COMPRESSOR_CONFIG_INITIALIZER;
    config.method = weftTrainOneBit;
    config.momentum = beta1;
    config.layerScales = 1;
    config.startIteration = exact;
    return config;
}

// One rank with two layers. Thread-bound.
struct LambRank {
    LambRank(weftComm_t comm, int exact) {
        const auto settings = lamb_hook(exact);
        must(weftTrainCompressorCreate(&compressor, &settings));
        const char* const names[] = {"matrix", "vector"};
        weftTrainTensor_t tensors[2] = {WEFT_TRAIN_TENSOR_INITIALIZER, WEFT_TRAIN_TENSOR_INITIALIZER};
        weftTrainPart_t parts[2] = {WEFT_TRAIN_PART_INITIALIZER, WEFT_TRAIN_PART_INITIALIZER};
        for (size_t layer : {0, 1}) {
            for (size_t i = 0; i < counts[layer]; ++i) values[layer].push_back(noise(1000, 0, layer, i));
            tensors[layer].name = parts[layer].name = names[layer];
            tensors[layer].data = parts[layer].values = values[layer].data();
            tensors[layer].count = parts[layer].count = counts[layer];
        }
        weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
        config.hook = weftTrainHookCompress;
        config.hookContext = compressor;
        must(weftTrainDdpCreate(&ddp, comm, tensors, 2, nullptr, 0, &config));
        weftTrainOptimizerConfig_t rule = WEFT_TRAIN_OPTIMIZER_CONFIG_INITIALIZER;
        rule.algorithm = weftTrainOneBitLamb;
        rule.beta1 = beta1;
        rule.beta2 = beta2;
        rule.epsilon = epsilon;
        rule.weightDecay = decay;
        rule.biasCorrection = 0;
        rule.compressor = compressor;
        rule.ddp = ddp;
        must(weftTrainOptimizerCreate(&optimizer, parts, 2, nullptr, 0, &rule));
    }
    LambRank(const LambRank&) = delete;
    ~LambRank() {
        (void)weftTrainOptimizerDestroy(optimizer);
        (void)weftTrainDdpDestroy(ddp);
        (void)weftTrainCompressorDestroy(compressor);
    }
    float* gradient(size_t layer) const {
        void* memory = nullptr;
        must(weftTrainDdpGetGradient(ddp, int(layer), &memory));
        return static_cast<float*>(memory);
    }
    // element(layer, i)
    template <class Element>
    void step(double rate, Element&& element) {
        must(weftTrainDdpBegin(ddp, weftTrainSynchronize, nullptr));
        for (size_t turn : {0, 1}) {
            const size_t layer = backward ? 1 - turn : turn;
            float* const memory = gradient(layer);
            for (size_t i = 0; i < counts[layer]; ++i) memory[i] = element(layer, i);
            must(weftTrainDdpGradientReady(ddp, int(layer), nullptr));
        }
        must(weftTrainDdpFinish(ddp, nullptr));
        for (size_t layer : {0, 1}) must(weftTrainOptimizerSetGradient(optimizer, int(layer), gradient(layer)));
        must(weftTrainOptimizerStep(optimizer, rate, 1, 0, nullptr));
    }
    std::span<float> state(size_t layer, int number) const {
        const char* name = nullptr;
        float* memory = nullptr;
        must(weftTrainOptimizerGetState(optimizer, int(layer), number, &name, &memory));
        return {memory, counts[layer]};
    }

    bool backward = false;  // the last layer's gradient comes first, so the second iteration has another bucket
    std::vector<float> values[2];
    weftTrainCompressor_t compressor = nullptr;
    weftTrainDdp_t ddp = nullptr;
    weftTrainOptimizer_t optimizer = nullptr;
};

// All ranks, one after the other, by the paper and DeepSpeed's constants.
struct SerialLamb {
    struct Layer {
        std::vector<float> weights, momentum, second, fresh;
        double trust = 0, factor = 1, scale = 0;
        size_t begin = 0;  // in the bucket
    };

    explicit SerialLamb(int count) : ranks(count), errors(size_t(count), std::vector<float>(total)), sum_errors(total) {
        for (size_t layer : {0, 1}) {
            layers[layer] = {{}, std::vector<float>(counts[layer]), std::vector<float>(counts[layer]), {}};
            for (size_t i = 0; i < counts[layer]; ++i) layers[layer].weights.push_back(noise(1000, 0, layer, i));
        }
    }
    static double norm(const std::vector<float>& numbers) {
        double sum = 0;
        for (const float number : numbers) sum += double(number) * double(number);
        return std::sqrt(sum);
    }
    void warm(int step, double rate) {
        for (size_t l : {0, 1}) {
            Layer& layer = layers[l];
            std::vector<float> update;
            for (size_t i = 0; i < counts[l]; ++i) {
                float gradient = 0;
                for (int rank = 0; rank < ranks; ++rank) gradient += noise(step, rank, l, i);
                gradient /= float(ranks);
                layer.momentum[i] = beta1 * layer.momentum[i] + (1 - beta1) * gradient;
                layer.second[i] = beta2 * layer.second[i] + (1 - beta2) * gradient * gradient;
                update.push_back(layer.momentum[i] / (std::sqrt(layer.second[i]) + epsilon) + decay * layer.weights[i]);
            }
            const double ratio = std::clamp(norm(layer.weights) / norm(update), 0.01, 10.0);
            layer.trust = 0.9 * layer.trust + 0.1 * ratio;
            for (size_t i = 0; i < counts[l]; ++i) layer.weights[i] -= float(rate * ratio) * update[i];
            layer.fresh = layer.second;
        }
    }
    // One scale and signs; returns what they stand for.
    static std::vector<float> signs(std::span<const float> numbers, float scale) {
        std::vector<float> sent;
        for (const float number : numbers) sent.push_back(number >= 0 ? scale : -scale);
        return sent;
    }
    static float root_mean(std::span<const float> numbers) {
        return float(norm({numbers.begin(), numbers.end()}) / std::sqrt(double(numbers.size())));
    }
    std::vector<float> exchanged(int step) {
        std::vector<float> sum(total);
        for (int rank = 0; rank < ranks; ++rank) {
            std::vector<float> own(total);
            for (size_t l : {0, 1})
                for (size_t i = 0; i < counts[l]; ++i)
                    own[layers[l].begin + i] = (beta1 * layers[l].momentum[i] + (1 - beta1) * noise(step, rank, l, i)) *
                                                   float(layers[l].scale) +
                                               errors[size_t(rank)][layers[l].begin + i];
            const auto sent = signs(own, root_mean(own));
            for (size_t i = 0; i < total; ++i) {
                errors[size_t(rank)][i] = own[i] - sent[i];
                sum[i] += sent[i];
            }
        }
        for (int rank = 0; rank < ranks; ++rank) {
            const NumberRange part = part_of(total, ranks, rank, OneBitCodec().part_unit(ranks));
            const auto mine = std::span(sum).subspan(part.begin, part.count);
            for (size_t i = 0; i < part.count; ++i) mine[i] = mine[i] / float(ranks) + sum_errors[part.begin + i];
            const auto sent = signs(mine, part.count > 0 ? root_mean(mine) : 0);
            for (size_t i = 0; i < part.count; ++i) {
                sum_errors[part.begin + i] = mine[i] - sent[i];
                mine[i] = sent[i];
            }
        }
        return sum;
    }
    void compressed(int step, double rate) {
        for (Layer& layer : layers)
            if (layer.scale == 0) layer.scale = std::sqrt(double(layer.momentum.size())) / norm(layer.momentum);
        const std::vector<float> all = exchanged(step);
        for (size_t l : {0, 1}) {
            Layer& layer = layers[l];
            std::vector<float> adam, update;
            double largest = 0;
            for (size_t i = 0; i < counts[l]; ++i) {
                const float momentum = all[layer.begin + i] / float(layer.scale);
                const float gradient = (momentum - beta1 * layer.momentum[i]) / (1 - beta1);
                layer.momentum[i] = momentum;
                layer.fresh[i] = beta2 * layer.fresh[i] + (1 - beta2) * gradient * gradient;
                const float frozen = std::sqrt(layer.second[i]) + epsilon;
                adam.push_back(momentum / frozen);
                update.push_back(adam.back() + decay * layer.weights[i]);
                largest = std::max(largest, double(frozen / (std::sqrt(layer.fresh[i]) + epsilon)));
            }
            const double share = std::min(1.0, norm(adam) / norm(update));
            double factor = std::clamp(largest * share + 1 - share, 0.5, 4.0);
            factor = std::clamp(factor, layer.factor * 0.9, layer.factor * 1.1);
            layer.factor = factor;
            for (size_t i = 0; i < counts[l]; ++i) layer.weights[i] -= float(rate * layer.trust * factor) * update[i];
        }
    }

    static constexpr size_t total = counts[0] + counts[1];
    int ranks;
    Layer layers[2];
    std::vector<std::vector<float>> errors;
    std::vector<float> sum_errors;
};

template <class Body>
void on_lamb(int ranks, Body&& body) {
    CAPTURE(ranks);
    for (const std::string& wrong : on_threads(ranks, nullptr, [&](weftComm_t comm, int own) -> std::string {
             try {
                 body(comm, own);
             } catch (const std::exception& error) {
                 return error.what();
             }
             return "";
         }))
        CHECK(wrong == "");
}

}  // namespace

TEST_CASE("1-bit LAMB has the weights of a serial computation, before and during compression") {
    for (int ranks = 1; ranks <= 4; ++ranks)
        on_lamb(ranks, [&](weftComm_t comm, int own) {
            constexpr int exact = 6, steps = 20;
            LambRank rank(comm, exact);
            SerialLamb serial(ranks);
            rank.backward = ranks % 2 == 0;
            bool changed = false;
            for (int step = 0; step < steps; ++step) {
                rank.step(0.05, [&](size_t layer, size_t i) { return noise(step, own, layer, i); });
                // The order in the bucket.
                const size_t last = rank.gradient(0) < rank.gradient(1) ? 1 : 0;
                serial.layers[last].begin = counts[1 - last];
                serial.layers[1 - last].begin = 0;
                if (step < exact)
                    serial.warm(step, 0.05);
                else
                    serial.compressed(step, 0.05);
                int compressed = 0;
                must(weftTrainCompressorGetCompressed(rank.compressor, &compressed));
                demand(compressed == (step >= exact), "the stage");
                for (size_t layer : {0, 1}) {
                    double trust = 0, factor = 0;
                    must(weftTrainOptimizerGetTrust(rank.optimizer, int(layer), &trust, &factor));
                    const auto& right = serial.layers[layer];
                    demand(std::fabs(trust - right.trust) < 1e-4 * right.trust, "the mean ratio");
                    demand(std::fabs(factor - (step < exact ? 0 : right.factor)) < 1e-3, "the factor");
                    changed |= step >= exact && std::fabs(factor - 1) > 0.05;
                    for (size_t i = 0; i < counts[layer]; ++i)
                        demand(std::fabs(rank.values[layer][i] - right.weights[i]) < 1e-4f,
                               "weight " + std::to_string(i) + " of step " + std::to_string(step));
                }
            }
            demand(changed, "a factor that follows the fresh moment");
        });
}

TEST_CASE("1-bit LAMB learns layers of different sizes") {
    on_lamb(2, [&](weftComm_t comm, int own) {
        LambRank rank(comm, 60);
        const auto target = [](size_t layer, size_t i) { return (layer == 0 ? 1.0f : 0.05f) * float(i % 3 + 1); };
        const auto distance = [&] {
            double sum = 0;
            for (size_t layer : {0, 1})
                for (size_t i = 0; i < counts[layer]; ++i)
                    sum += std::fabs(rank.values[layer][i] / target(layer, i) - 1);
            return sum / double(counts[0] + counts[1]);
        };
        const double first = distance();
        double compressed_from = 0;
        for (int step = 0; step < 400; ++step) {
            if (step == 60) compressed_from = distance();
            rank.step(0.05 * (1 - step / 400.0), [&](size_t layer, size_t i) {
                return rank.values[layer][i] - target(layer, i) + 0.1f * noise(step + 1000, own, layer, i);
            });
        }
        demand(distance() < 0.3 * first && distance() < 0.7 * compressed_from,
               std::to_string(first) + ", " + std::to_string(compressed_from) + ", " + std::to_string(distance()));
    });
}

TEST_CASE("1-bit LAMB goes on from its saved state") {
    for (const int at : {3, 9})
        on_lamb(2, [&](weftComm_t comm, int own) {
            const auto run = [&](LambRank& rank, int from, int to) {
                for (int step = from; step < to; ++step)
                    rank.step(0.05, [&](size_t layer, size_t i) { return noise(step, own, layer, i); });
            };
            LambRank whole(comm, 6), first(comm, 6), second(comm, 6);
            run(whole, 0, 14);
            run(first, 0, at);
            size_t bytes = 0;
            must(weftTrainCompressorSave(first.compressor, nullptr, &bytes));
            std::vector<std::byte> state(bytes);
            must(weftTrainCompressorSave(first.compressor, state.data(), &bytes));
            must(weftTrainCompressorLoad(second.compressor, state.data(), bytes));
            for (size_t layer : {0, 1}) {
                std::copy(first.values[layer].begin(), first.values[layer].end(), second.values[layer].begin());
                for (int number = 0; number < 3; ++number)
                    std::copy_n(first.state(layer, number).data(), counts[layer], second.state(layer, number).data());
                double trust = 0, factor = 0;
                must(weftTrainOptimizerGetTrust(first.optimizer, int(layer), &trust, &factor));
                must(weftTrainOptimizerSetTrust(second.optimizer, int(layer), trust, factor));
            }
            run(second, at, 14);
            for (size_t layer : {0, 1})
                for (size_t i = 0; i < counts[layer]; ++i)
                    demand(whole.values[layer][i] == second.values[layer][i],
                           "weight " + std::to_string(i) + ": " + std::to_string(whole.values[layer][i]) + " and " +
                               std::to_string(second.values[layer][i]));
        });
}

TEST_CASE("wrong settings of 1-bit LAMB are refused") {
    on_lamb(1, [](weftComm_t, int) {
        const auto refused = [](auto&& change, const char* id) {
            weftTrainCompressor_t compressor = nullptr;
            auto settings = lamb_hook(0);
            weftTrainOptimizerConfig_t rule = WEFT_TRAIN_OPTIMIZER_CONFIG_INITIALIZER;
            rule.algorithm = weftTrainOneBitLamb;
            rule.biasCorrection = 0;
            rule.beta1 = settings.momentum;
            float number = 1;
            weftTrainPart_t part = WEFT_TRAIN_PART_INITIALIZER;
            part.name = "a";
            part.values = &number;
            part.count = 1;
            change(settings, rule);
            must(weftTrainCompressorCreate(&compressor, &settings));
            if (!rule.compressor) rule.compressor = compressor;
            if (rule.trust == 7) rule.compressor = nullptr;
            weftTrainOptimizer_t optimizer = nullptr;
            const auto result = weftTrainOptimizerCreate(&optimizer, &part, 1, nullptr, 0, &rule);
            const std::string seen = result == weftSuccess ? "none" : last_error().id;
            (void)weftTrainOptimizerDestroy(optimizer);
            (void)weftTrainCompressorDestroy(compressor);
            demand(seen == id, seen + ", not " + id);
        };
        refused([](auto&, auto&) {}, "none");
        refused([](auto&, auto& rule) { rule.biasCorrection = 1; }, "argument.config");
        refused([](auto&, auto& rule) { rule.beta1 = 0.8; }, "argument.config");
        refused([](auto& settings, auto&) { settings.layerScales = 0; }, "argument.config");
        refused([](auto&, auto& rule) { rule.trust = 7; }, "argument.handle");
        refused([](auto&, auto& rule) { rule.mostFactor = 0.1; }, "argument.config");
        refused([](auto&, auto& rule) { rule.leastTrust = 0; }, "argument.config");
        refused([](auto&, auto& rule) { rule.factorChange = 1; }, "argument.config");
        weftTrainCompressor_t compressor = nullptr;
        auto settings = lamb_hook(0);
        settings.method = weftTrainInt8;
        demand(weftTrainCompressorCreate(&compressor, &settings) == weftInvalidArgument, "scales of int8");
    });
}
