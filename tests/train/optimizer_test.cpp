// Optimizers on whole and sharded parameters, against references in doubles; their states; and wrong use.
#include <fmt/format.h>
#include <weft/train.h>

#include <algorithm>
#include <cstring>
#include <latch>
#include <random>

#include "src/base/arithmetic.hpp"
#include "tests/amount.hpp"
#include "tests/comm/on_threads.hpp"
#include "tests/error.hpp"
#include "tests/train/optimizer_reference.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

constexpr size_t counts[] = {0, 1, 17, 1024, 1500, 3};
constexpr weftDataType_t gradient_types[] = {weftFloat32, weftBfloat16, weftFloat16};

uint16_t narrowed(float value, weftDataType_t type) {
    return type == weftFloat16 ? Arithmetic<weftFloat16>::round(value) : Arithmetic<weftBfloat16>::round(value);
}
float widened(uint16_t bits, weftDataType_t type) {
    return type == weftFloat16 ? Arithmetic<weftFloat16>::widen(bits) : Arithmetic<weftBfloat16>::widen(bits);
}

weftTrainOptimizerConfig_t rule(weftTrainAlgorithm_t algorithm) {
    weftTrainOptimizerConfig_t config = WEFT_TRAIN_OPTIMIZER_CONFIG_INITIALIZER;
    config.algorithm = algorithm;
    return config;
}

// All rules, with and without what is optional.
std::vector<weftTrainOptimizerConfig_t> all_configs() {
    std::vector<weftTrainOptimizerConfig_t> configs;
    for (int i = weftTrainSgd; i <= weftTrainLars; ++i) {
        weftTrainOptimizerConfig_t config = rule(weftTrainAlgorithm_t(i));
        configs.push_back(config);
        config.weightDecay = 0.1;
        config.momentum = 0.9;
        config.beta2 = 0.95;
        config.epsilon = 1e-3;
        configs.push_back(config);
        config.nesterov = 1;
        configs.push_back(config);
        config.nesterov = 0;
        config.dampening = 0.25;
        config.biasCorrection = 0;
        configs.push_back(config);
    }
    return configs;
}

// Parameters of every rank, and one rank's parts: every second parameter is sharded over the ranks in uneven pieces.
class Model {
  public:
    Model(const weftTrainOptimizerConfig_t& config, int ranks, int rank, uint32_t seed) : random_(seed) {
        for (size_t p = 0; p < std::size(counts); ++p) {
            const size_t count = counts[p];
            std::vector<double> values(count);
            for (double& value : values) value = double(float(number()));
            const bool sharded = p % 2 == 1;
            const auto cut = [&](int r) {
                return r == ranks ? count : count * size_t(r) * size_t(r) / size_t(ranks * ranks);
            };
            begins_.push_back(sharded ? cut(rank) : 0);
            const size_t end = sharded ? cut(rank + 1) : count;
            parts_.emplace_back(values.begin() + ptrdiff_t(begins_[p]), values.begin() + ptrdiff_t(end));
            copies_.emplace_back(parts_[p].size(), uint16_t(0));
            gradients_.emplace_back(parts_[p].size() * sizeof(float));
            references_.emplace_back(config, std::move(values));
        }
    }

    std::vector<weftTrainPart_t> parts() {
        std::vector<weftTrainPart_t> made;
        for (size_t p = 0; p < parts_.size(); ++p) {
            weftTrainPart_t part = WEFT_TRAIN_PART_INITIALIZER;
            part.name = "some";
            part.values = parts_[p].data();
            if (p != 2) part.copy = copies_[p].data();
            part.gradient = gradients_[p].data();
            part.count = parts_[p].size();
            part.copyType = p % 2 ? weftFloat16 : weftBfloat16;
            part.gradientType = gradient_types[p % 3];
            part.axes = p % 2;
            made.push_back(part);
        }
        return made;
    }

    // New gradients, times `loss_scale`, and the step of the references.
    void prepare(double learning_rate, double loss_scale) {
        for (size_t p = 0; p < parts_.size(); ++p) {
            const weftDataType_t type = gradient_types[p % 3];
            std::vector<double> gradient(counts[p]);
            for (size_t i = 0; i < gradient.size(); ++i) {
                float scaled = float(number() * loss_scale);
                if (type != weftFloat32) scaled = widened(narrowed(scaled, type), type);
                gradient[i] = double(scaled) / loss_scale;
                if (i >= begins_[p] && i - begins_[p] < parts_[p].size()) put(p, i - begins_[p], scaled);
            }
            references_[p].step(learning_rate, gradient);
        }
    }

    // The first difference; empty: none.
    std::string wrong(weftTrainOptimizer_t optimizer) const {
        for (size_t p = 0; p < parts_.size(); ++p)
            for (size_t i = 0; i < parts_[p].size(); ++i) {
                const double expected = references_[p].values()[begins_[p] + i];
                if (!(std::fabs(double(parts_[p][i]) - expected) <= 1e-5 * std::max(1.0, std::fabs(expected))))
                    return fmt::format("element {} of parameter {} is {}, not {}", i, p, parts_[p][i], expected);
                const weftDataType_t type = p % 2 ? weftFloat16 : weftBfloat16;
                if (copies_[p][i] != (p == 2 ? 0 : narrowed(parts_[p][i], type)))
                    return fmt::format("the copy of element {} of parameter {} is wrong", i, p);
            }
        return wrong_states(optimizer);
    }

  private:
    double number() { return std::ldexp(double(random_()), -31) - 1; }
    void put(size_t p, size_t i, float value) {
        const weftDataType_t type = gradient_types[p % 3];
        const uint16_t bits = narrowed(value, type);
        if (type == weftFloat32)
            memcpy(gradients_[p].data() + 4 * i, &value, 4);
        else
            memcpy(gradients_[p].data() + 2 * i, &bits, 2);
    }
    std::string wrong_states(weftTrainOptimizer_t optimizer) const {
        int states = 0;
        if (weftTrainOptimizerGetStateCount(optimizer, &states) != weftSuccess) return "no states";
        for (size_t p = 0; p < parts_.size(); ++p)
            for (int s = 0; s < states; ++s) {
                const char* name = nullptr;
                float* state = nullptr;
                if (weftTrainOptimizerGetState(optimizer, int(p), s, &name, &state) != weftSuccess) return "no state";
                const auto& expected = s == 0 ? references_[p].first() : references_[p].second();
                for (size_t i = 0; i < parts_[p].size(); ++i)
                    if (!(std::fabs(double(state[i]) - expected[begins_[p] + i]) <= 2e-5))
                        return fmt::format("element {} of {} of parameter {} is {}", i, name, p, state[i]);
            }
        return "";
    }

    std::mt19937 random_;
    std::vector<ReferenceOptimizer> references_;
    std::vector<size_t> begins_;
    std::vector<std::vector<float>> parts_;
    std::vector<std::vector<uint16_t>> copies_;
    std::vector<std::vector<std::byte>> gradients_;
};

std::string trains(const weftTrainOptimizerConfig_t& config, weftComm_t comm, int ranks, int rank) {
    Model model(config, ranks, rank, seed());
    weftTrainOptimizer_t optimizer = nullptr;
    const auto parts = model.parts();
    if (weftTrainOptimizerCreate(&optimizer, parts.data(), parts.size(), &comm, 1, &config) != weftSuccess)
        return weftGetLastError(nullptr);
    std::string wrong;
    for (int step = 0; step < 5 && wrong.empty(); ++step) {
        const double learning_rate = 0.05 / (step + 1), loss_scale = step % 2 ? 1 : 128;
        model.prepare(learning_rate, loss_scale);
        if (weftTrainOptimizerStep(optimizer, learning_rate, 1 / loss_scale, 1, nullptr) != weftSuccess ||
            weftTrainOptimizerStep(optimizer, learning_rate, 1 / loss_scale, 0, nullptr) != weftSuccess)
            wrong = weftGetLastError(nullptr);
        else
            wrong = model.wrong(optimizer);
        uint64_t steps = 0;
        if (weftTrainOptimizerGetSteps(optimizer, 1, &steps) != weftSuccess || steps != uint64_t(step + 1))
            wrong += " wrong steps";
    }
    if (weftTrainOptimizerDestroy(optimizer) != weftSuccess) wrong += weftGetLastError(nullptr);
    return wrong;
}

// A part of a few numbers.
struct Small {
    float values[2] = {3, 4}, gradient[2] = {0.6f, 0.8f};
    weftTrainPart_t part = WEFT_TRAIN_PART_INITIALIZER;
    weftTrainOptimizer_t optimizer = nullptr;

    explicit Small(size_t count = 2) {
        part.name = "small";
        part.values = values;
        part.gradient = gradient;
        part.count = count;
    }
    ~Small() { (void)weftTrainOptimizerDestroy(optimizer); }
    weftResult_t make(const weftTrainOptimizerConfig_t& config) {
        return weftTrainOptimizerCreate(&optimizer, &part, 1, nullptr, 0, &config);
    }
    weftResult_t step(double learning_rate = 1) {
        return weftTrainOptimizerStep(optimizer, learning_rate, 1, 0, nullptr);
    }
};

}  // namespace

TEST_CASE("all rules train whole and sharded parameters of all types as their formulas in doubles") {
    const auto configs = all_configs();
    for (const int ranks : {1, 2, 4})
        for (const auto& config : configs) {
            CAPTURE(ranks, int(config.algorithm), config.momentum, config.nesterov, config.dampening);
            if (small() && ranks == 4 && config.algorithm != weftTrainLamb && config.algorithm != weftTrainLars)
                continue;
            for (const std::string& wrong : on_threads(
                     ranks, nullptr, [&](weftComm_t comm, int rank) { return trains(config, comm, ranks, rank); }))
                CHECK(wrong == "");
        }
}

TEST_CASE("LARS and LAMB scale a layer by golden ratios") {
    Small lars;
    auto config = rule(weftTrainLars);
    config.weightDecay = 0.01;
    REQUIRE(lars.make(config) == weftSuccess);
    REQUIRE(lars.step() == weftSuccess);
    CHECK(std::fabs((3 - lars.values[0]) / (0.6 + 0.01 * 3) - .0047619) < 1e-6);
    CHECK(std::fabs((4 - lars.values[1]) / (0.8 + 0.01 * 4) - .0047619) < 1e-6);

    // The first direction of Adam is the sign: |w| / |update| is 5 / sqrt(2).
    Small lamb;
    REQUIRE(lamb.make(rule(weftTrainLamb)) == weftSuccess);
    REQUIRE(lamb.step(0.1) == weftSuccess);
    CHECK(std::fabs(3 - lamb.values[0] - 0.1 * 5 / std::sqrt(2)) < 1e-5);

    // A norm of zero: the ratio is 1.
    for (const auto algorithm : {weftTrainLars, weftTrainLamb}) {
        Small zeros;
        zeros.values[0] = zeros.values[1] = 0;
        REQUIRE(zeros.make(rule(algorithm)) == weftSuccess);
        REQUIRE(zeros.step(0.1) == weftSuccess);
        CHECK(std::fabs(zeros.values[0] + 0.1 * (algorithm == weftTrainLars ? 0.6 : 1)) < 1e-6);
    }
}

TEST_CASE("a restored optimizer goes on as the one that was saved") {
    for (const auto& config : all_configs()) {
        Small saved, restored;
        REQUIRE(saved.make(config) == weftSuccess);
        REQUIRE(restored.make(config) == weftSuccess);
        for (int i = 0; i < 3; ++i) REQUIRE(saved.step(0.1) == weftSuccess);
        std::copy(std::begin(saved.values), std::end(saved.values), restored.values);
        int states = 0;
        REQUIRE(weftTrainOptimizerGetStateCount(saved.optimizer, &states) == weftSuccess);
        for (int s = 0; s < states; ++s) {
            const char* name = nullptr;
            float *from = nullptr, *to = nullptr;
            REQUIRE(weftTrainOptimizerGetState(saved.optimizer, 0, s, &name, &from) == weftSuccess);
            REQUIRE(weftTrainOptimizerGetState(restored.optimizer, 0, s, &name, &to) == weftSuccess);
            std::copy(from, from + 2, to);
        }
        REQUIRE(weftTrainOptimizerSetSteps(restored.optimizer, 0, 3) == weftSuccess);
        REQUIRE(saved.step(0.1) == weftSuccess);
        REQUIRE(restored.step(0.1) == weftSuccess);
        CHECK(saved.values[0] == restored.values[0]);
        CHECK(saved.values[1] == restored.values[1]);
    }
}

TEST_CASE("a part without a gradient stays as it is") {
    Small model;
    REQUIRE(model.make(rule(weftTrainAdamW)) == weftSuccess);
    REQUIRE(weftTrainOptimizerSetGradient(model.optimizer, 0, nullptr) == weftSuccess);
    REQUIRE(model.step() == weftSuccess);
    uint64_t steps = 7;
    CHECK(weftTrainOptimizerGetSteps(model.optimizer, 0, &steps) == weftSuccess);
    CHECK((steps == 0 && model.values[0] == 3));
    float other[2] = {1, 1};
    REQUIRE(weftTrainOptimizerSetGradient(model.optimizer, 0, other) == weftSuccess);
    REQUIRE(model.step() == weftSuccess);
    CHECK(model.values[0] != 3);
}

TEST_CASE("without bias correction moments are used as they are, and beta2 may be 1") {
    Small frozen;
    auto config = rule(weftTrainAdam);
    config.beta1 = 0;
    config.beta2 = 1;
    config.biasCorrection = 0;
    REQUIRE(frozen.make(config) == weftSuccess);
    const char* name = nullptr;
    float* second = nullptr;
    REQUIRE(weftTrainOptimizerGetState(frozen.optimizer, 0, 1, &name, &second) == weftSuccess);
    second[0] = 4;
    second[1] = 16;
    for (int step = 1; step <= 2; ++step) {
        REQUIRE(frozen.step(1) == weftSuccess);
        CHECK(std::fabs(frozen.values[0] - (3 - 0.3 * step)) < 1e-6);
        CHECK(std::fabs(frozen.values[1] - (4 - 0.2 * step)) < 1e-6);
    }
    CHECK((second[0] == 4 && second[1] == 16));
}

TEST_CASE("a step sends the norms of all layers in one all-reduce") {
    for (const auto algorithm : {weftTrainLamb, weftTrainLars}) {
        const auto wrong = on_threads(2, nullptr, [&](weftComm_t comm, int rank) -> std::string {
            // Rank 1 makes the one call itself: squares of weights and update for each of the three layers.
            double squares[6] = {};
            if (rank == 1) return id_of(weftAllReduce(squares, squares, 6, weftFloat64, weftSum, comm, nullptr));
            Small model;
            std::vector<weftTrainPart_t> parts(3, model.part);
            for (weftTrainPart_t& each : parts) each.axes = 1;
            const auto config = rule(algorithm);
            if (weftTrainOptimizerCreate(&model.optimizer, parts.data(), 3, &comm, 1, &config) != weftSuccess)
                return newest_id();
            return id_of(model.step());
        });
        CHECK(wrong == std::vector<std::string>(2));
    }
}

TEST_CASE("a step with norms of layers that fails changes nothing") {
    for (const auto algorithm : {weftTrainLamb, weftTrainLars}) {
        std::latch rank_0_created(1);
        const auto wrong = on_threads(2, nullptr, [&](weftComm_t comm, int rank) -> std::string {
            Small model;
            model.part.axes = 1;
            auto config = rule(algorithm);
            config.momentum = 0.9;
            const auto created = weftTrainOptimizerCreate(&model.optimizer, &model.part, 1, &comm, 1, &config);
            if (rank == 0) rank_0_created.count_down();
            if (created != weftSuccess) return newest_id();
            if (rank == 1) {
                rank_0_created.wait();  // an abort would end the creation, too
                return id_of(weftCommAbort(comm));
            }
            if (model.step() == weftSuccess) return "a step without the other rank";
            int states = 0;
            uint64_t steps = 1;
            if (weftTrainOptimizerGetStateCount(model.optimizer, &states) != weftSuccess) return newest_id();
            for (int state = 0; state < states; ++state) {
                const char* name = nullptr;
                float* moment = nullptr;
                if (weftTrainOptimizerGetState(model.optimizer, 0, state, &name, &moment) != weftSuccess)
                    return newest_id();
                if (moment[0] != 0 || moment[1] != 0) return name;
            }
            if (weftTrainOptimizerGetSteps(model.optimizer, 0, &steps) != weftSuccess || steps != 0) return "steps";
            return model.values[0] == 3 && model.values[1] == 4 ? "" : "values";
        });
        CHECK(wrong == std::vector<std::string>(2));
    }
}

TEST_CASE("a step in the middle of accumulation is an error, and changes nothing") {
    const auto wrong = on_threads(2, nullptr, [&](weftComm_t comm, int) -> std::string {
        Small model;
        weftTrainTensor_t tensor = WEFT_TRAIN_TENSOR_INITIALIZER;
        tensor.name = "small";
        tensor.data = model.values;
        tensor.gradient = model.gradient;
        tensor.count = 2;
        auto config = rule(weftTrainSgd);
        std::string seen;
        const auto note = [&](weftResult_t result) { seen += result == weftSuccess ? "+" : " " + newest_id() + " "; };
        note(weftTrainDdpCreate(&config.ddp, comm, &tensor, 1, nullptr, 0, nullptr));
        note(model.make(config));
        for (const auto mode : {weftTrainAccumulate, weftTrainSynchronize}) {
            note(weftTrainDdpBegin(config.ddp, mode, nullptr));
            note(weftTrainDdpGradientReady(config.ddp, 0, nullptr));
            note(model.step());
            note(weftTrainDdpFinish(config.ddp, nullptr));
            if (mode == weftTrainSynchronize && model.values[0] != 3) seen += "changed";
            note(model.step());
        }
        note(weftTrainDdpDestroy(config.ddp));
        note(model.step());
        return seen;
    });
    CHECK(wrong == std::vector<std::string>(2, "++++ train.step + train.step ++ train.step +++ argument.handle "));
}

TEST_CASE("a step needs the gradients of all copies of a sharded model") {
    const auto wrong = on_threads(2, nullptr, [&](weftComm_t comm, int) -> std::string {
        Small model;
        weftTrainTensor_t tensor = WEFT_TRAIN_TENSOR_INITIALIZER;
        tensor.name = "small";
        tensor.data = model.values;
        tensor.count = 2;
        weftTrainUnit_t unit = WEFT_TRAIN_UNIT_INITIALIZER;
        unit.name = "unit";
        unit.parameters = &tensor;
        unit.parameterCount = 1;
        weftTrainShardConfig_t sharding = WEFT_TRAIN_SHARD_CONFIG_INITIALIZER;
        sharding.shardRanks = 1;  // two copies
        auto config = rule(weftTrainSgd);
        std::string seen;
        const auto note = [&](weftResult_t result) { seen += result == weftSuccess ? "+" : " " + newest_id() + " "; };
        note(weftTrainShardCreate(&config.shard, comm, &unit, 1, &sharding));
        note(model.make(config));
        for (const auto mode : {weftTrainAccumulate, weftTrainSynchronize}) {
            void* gradient = nullptr;
            note(weftTrainShardGather(config.shard, 0, nullptr));
            note(weftTrainShardGetGradient(config.shard, 0, &gradient));
            note(model.step());
            note(weftTrainShardReduceScatter(config.shard, 0, mode, nullptr));
            note(weftTrainShardRelease(config.shard, 0, weftTrainBackward, nullptr));
            note(weftTrainShardFinish(config.shard, nullptr));
            note(model.step());
        }
        note(weftTrainShardDestroy(config.shard));
        return seen;
    });
    CHECK(wrong == std::vector<std::string>(2, "++++ train.step +++ train.step ++ train.step +++++"));
}

TEST_CASE("wrong arguments of optimizers are errors with ids") {
    using Change = void (*)(Small&, weftTrainOptimizerConfig_t&);
    const std::pair<Change, const char*> changes[] = {
        {[](Small& model, auto&) { model.part.size = 1; }, "argument.config"},
        {[](Small& model, auto&) { model.part.name = nullptr; }, "argument.null"},
        {[](Small& model, auto&) { model.part.values = nullptr; }, "argument.null"},
        {[](Small& model, auto&) { model.part.count = size_t(1) << 60; }, "argument.count"},
        {[](Small& model, auto&) { model.part.gradientType = weftFloat64; }, "argument.datatype"},
        {[](Small& model, auto&) { model.part.copy = model.values, model.part.copyType = weftFloat32; },
         "argument.datatype"},
        {[](Small& model, auto&) { model.part.axes = 1; }, "argument.value"},
        {[](Small&, auto& config) { config.magic = 0; }, "argument.config"},
        {[](Small&, auto& config) { config.algorithm = weftTrainAlgorithm_t(5); }, "argument.config"},
        {[](Small&, auto& config) { config.beta1 = 1; }, "argument.config"},
        {[](Small&, auto& config) { config.beta2 = NAN; }, "argument.config"},
        {[](Small&, auto& config) { config.beta2 = 1; }, "argument.config"},
        {[](Small&, auto& config) { config.beta2 = 1.5, config.biasCorrection = 0; }, "argument.config"},
        {[](Small&, auto& config) { config.biasCorrection = 2; }, "argument.config"},
        {[](Small&, auto& config) { config.epsilon = -1; }, "argument.config"},
        {[](Small&, auto& config) { config.weightDecay = INFINITY; }, "argument.config"},
        {[](Small&, auto& config) { config.nesterov = 1; }, "argument.config"},
        {[](Small&, auto& config) { config.momentum = -0.5; }, "argument.config"},
        {[](Small&, auto& config) { config.trust = -1; }, "argument.config"},
        {[](Small&, auto& config) { config.dampening = NAN; }, "argument.config"},
    };
    for (const auto& each : changes) {
        Small model;
        auto config = rule(weftTrainSgd);
        each.first(model, config);
        CHECK(model.make(config) != weftSuccess);
        CHECK(newest_id() == std::string(each.second));
        CHECK(model.optimizer == nullptr);
    }
    Small model;
    CHECK(id_of(weftTrainOptimizerCreate(&model.optimizer, nullptr, 1, nullptr, 0, nullptr)) == "argument.null");
    CHECK(id_of(weftTrainOptimizerCreate(&model.optimizer, &model.part, 0, nullptr, 0, nullptr)) == "argument.value");
    CHECK(id_of(weftTrainOptimizerCreate(&model.optimizer, &model.part, 1, nullptr, 1, nullptr)) == "argument.null");
    REQUIRE(model.make(rule(weftTrainSgd)) == weftSuccess);
    CHECK(id_of(model.step(-1)) == "argument.value");
    CHECK(id_of(model.step(NAN)) == "argument.value");
    CHECK(id_of(weftTrainOptimizerStep(model.optimizer, 1, INFINITY, 0, nullptr)) == "argument.value");
    CHECK(id_of(weftTrainOptimizerStep(model.optimizer, 1, 1, 2, nullptr)) == "argument.value");
    CHECK(id_of(weftTrainOptimizerSetGradient(model.optimizer, 1, nullptr)) == "argument.value");
    float* state = nullptr;
    const char* name = nullptr;
    CHECK(id_of(weftTrainOptimizerGetState(model.optimizer, 0, 0, &name, &state)) == "argument.value");
    CHECK(model.values[0] == 3);
    REQUIRE(weftTrainOptimizerDestroy(model.optimizer) == weftSuccess);
    CHECK(id_of(model.step()) == "argument.handle");
    model.optimizer = nullptr;
    CHECK(id_of(model.step()) == "argument.handle");
}
