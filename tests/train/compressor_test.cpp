// Compressing hooks in host memory: the bounds of their errors, their state, and wrong use.
#include <weft/train.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "src/train/hooks/compressor_state.hpp"
#include "src/train/hooks/largest_numbers.hpp"
#include "tests/error.hpp"
#include "tests/train/hooked_model.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::train;

const bool weft::internal::test::program_has_devices = false;

namespace {

using Model = std::vector<std::pair<weftDataType_t, size_t>>;

double average_of(int ranks, int iteration, int p, size_t i) {
    double sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += gradient_element(rank, iteration, p, i);
    return sum / ranks;
}

double largest_of(int ranks, int iteration) {
    double largest = 0;
    const Model model = model_of_all_types();
    for (int rank = 0; rank < ranks; ++rank)
        for (size_t p = 0; p < model.size(); ++p)
            for (size_t i = 0; i < model[p].second; ++i)
                largest = std::max(largest, std::fabs(gradient_element(rank, iteration, int(p), i)));
    return largest;
}

}  // namespace

TEST_CASE("the largest magnitude of numbers with a NaN is infinite") {
    const std::vector<float> numbers = {1, -3, 3, 0, std::numeric_limits<float>::quiet_NaN()};
    CHECK(std::isinf(largest_magnitude(numbers)));
    CHECK(largest_magnitude(std::span(numbers).first(4)) == 3);
}

TEST_CASE("results of all methods are within their bounds, for all types and 1 to 4 ranks") {
    for (const int size : {1, 2, 3, 4})
        for (const weftTrainCompression_t method : compressing_methods) {
            CAPTURE(size, int(method));
            for (const std::string& wrong : on_threads(size, nullptr, [&](weftComm_t comm, int) {
                     weftTrainCompressorConfig_t config = config_of(method);
                     config.errorFeedback = 0;
                     // These two are exact so.
                     config.density = 1;
                     config.leastRate = 1e6;
                     const OwnCompressor compressor(config);
                     TrainedRank rank(comm, compressor.hooked());
                     for (int iteration = 0; iteration < 3; ++iteration) {
                         rank.begin();
                         rank.backward(iteration);
                         rank.finish();
                         const double largest = largest_of(size, iteration);
                         const auto allowed = method == weftTrainInt8     ? largest / 127
                                              : method == weftTrainFloat8 ? largest * (1.0 / 8 + 0x1p-17)
                                              : method == weftTrainOneBit ? 4 * largest
                                                                          : largest * 0x1p-22;
                         rank.expect([&](int p, size_t i) { return average_of(size, iteration, p, i); }, "average", 2,
                                     allowed / 64);
                     }
                     return rank.wrong();
                 }))
                CHECK(wrong == "");
        }
}

TEST_CASE("all ranks get the same bits, also with error feedback and after the rebuild of the buckets") {
    for (const weftTrainCompression_t method : compressing_methods) {
        CAPTURE(int(method));
        std::vector<std::vector<double>> seen(3);
        for (const std::string& wrong : on_threads(3, nullptr, [&](weftComm_t comm, int own) {
                 const OwnCompressor compressor(config_of(method));
                 TrainedRank rank(comm, compressor.hooked(600));
                 for (int iteration = 0; iteration < 4; ++iteration) {
                     rank.begin();
                     rank.backward(iteration);
                     rank.finish();
                     for (int p = 0; p < rank.parameters(); ++p)
                         for (size_t i = 0; i < model_of_all_types()[size_t(p)].second; ++i)
                             seen[size_t(own)].push_back(rank.gradient_at(p, i));
                 }
                 return rank.wrong();
             }))
            CHECK(wrong == "");
        CHECK(!seen[0].empty());
        CHECK(seen[0] == seen[1]);
        CHECK(seen[0] == seen[2]);
    }
}

namespace {

// One float32 matrix of 12 rows and 10 columns, and a vector.
struct MatrixModel : HookedModel {
    MatrixModel(weftComm_t comm, const weftTrainDdpConfig_t& config)
        : HookedModel(comm, false, {{weftFloat32, 120, 12}, {weftFloat32, 5, 0}}, config) {}
    std::span<const float> result() const { return {static_cast<float*>(gradient(0)), 120}; }
};

template <class Body>
void on_two_threads(Body&& body) {
    const auto run = [&](weftComm_t comm, int own) {
        body(comm, own);
        return std::string();
    };
    for (const std::string& wrong : on_ranks(2, false, run)) CHECK(wrong == "");
}

void demand(bool right, const char* what) {
    if (!right) throw std::runtime_error(what);
}

}  // namespace

namespace {

struct Adam {
    weftTrainOptimizer_t optimizer = nullptr;

    // Of the matrix.
    Adam(MatrixModel& model, double beta1, double beta2) {
        weftTrainPart_t part = WEFT_TRAIN_PART_INITIALIZER;
        part.name = "matrix";
        part.values = model.values(0);
        part.gradient = model.gradient(0);
        part.count = 120;
        weftTrainOptimizerConfig_t config = WEFT_TRAIN_OPTIMIZER_CONFIG_INITIALIZER;
        config.algorithm = weftTrainAdamW;
        config.beta1 = beta1;
        config.beta2 = beta2;
        config.weightDecay = 0.1;
        config.biasCorrection = 0;
        need(weftTrainOptimizerCreate(&optimizer, &part, 1, nullptr, 0, &config));
    }
    Adam(const Adam&) = delete;
    ~Adam() { (void)weftTrainOptimizerDestroy(optimizer); }
    std::span<float> second() const {
        const char* name = nullptr;
        float* values = nullptr;
        need(weftTrainOptimizerGetState(optimizer, 0, 1, &name, &values));
        return {values, 120};
    }
    void step(void* gradient) const {
        need(weftTrainOptimizerSetGradient(optimizer, 0, gradient));
        need(weftTrainOptimizerStep(optimizer, 0.01, 1, 0, nullptr));
    }
};

}  // namespace

TEST_CASE("1-bit Adam by the guide's recipe follows its formula") {
    on_two_threads([&](weftComm_t comm, int) {
        constexpr int exact = 5, steps = 12;
        weftTrainCompressorConfig_t config = config_of(weftTrainOneBit);
        config.momentum = 0.9;
        config.startIteration = exact;
        const OwnCompressor compressor(config);
        MatrixModel model(comm, compressor.hooked());
        const Adam warm(model, 0.9, 0.99), frozen(model, 0, 1);
        std::vector<double> w(120, 0), m(120, 0), v(120, 0);
        for (int k = 0; k < steps; ++k) {
            // Of one magnitude, so that signs are exact.
            const auto element = [&](size_t i) { return (k % 3 + 1) * (i % 3 == 0 ? -1.0 : 1.0); };
            model.iterate([&](int, size_t i) { return element(i); });
            if (k == exact) std::copy_n(warm.second().data(), 120, frozen.second().data());
            (k < exact ? warm : frozen).step(model.gradient(0));
            for (size_t i = 0; i < 120; ++i) {
                m[i] = 0.9 * m[i] + 0.1 * element(i);
                if (k < exact) v[i] = 0.99 * v[i] + 0.01 * element(i) * element(i);
                w[i] = w[i] * (1 - 0.01 * 0.1) - 0.01 * m[i] / (std::sqrt(v[i]) + 1e-8);
                demand(std::fabs(model.values(0)[i] - w[i]) < 1e-5, "a weight");
            }
        }
        demand(std::equal(warm.second().begin(), warm.second().end(), frozen.second().begin()), "the frozen moment");
    });
}

TEST_CASE("what is not finite reaches all ranks, and leaves the state alone") {
    for (const weftTrainCompression_t method : compressing_methods)
        for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()})
            on_two_threads([&](weftComm_t comm, int own) {
                const OwnCompressor compressor(config_of(method));
                MatrixModel model(comm, compressor.hooked());
                for (int k = 0; k < 2; ++k)
                    model.iterate([&](int p, size_t i) { return gradient_element(own, k, p, i); });
                const auto before = states_from(method, compressor.saved());
                model.iterate(
                    [&](int p, size_t i) { return own == 1 && i == 3 ? bad : gradient_element(own, 2, p, i); });
                const auto after = states_from(method, compressor.saved());
                demand(before && after && before->size() == 2 && after->size() == 2, "the states");
                for (size_t p = 0; p < 2; ++p)
                    for (const auto part : {&CompressorState::error, &CompressorState::momentum,
                                            &CompressorState::right, &CompressorState::sum_error})
                        demand((*before)[p].*part == (*after)[p].*part, "the state after what is not finite");
                demand(!(*before)[0].error.empty(), "unsent gradients");
                bool finite = true;
                for (size_t i = 0; i < 120; ++i) finite &= std::isfinite(model.result()[i]);
                demand(!finite, "a result that is not finite");
                model.iterate([&](int p, size_t i) { return gradient_element(own, 3, p, i); });
                for (size_t i = 0; i < 120; ++i) demand(std::isfinite(model.result()[i]), "the next iteration");
            });
}

TEST_CASE("a compressor goes on from its saved state") {
    for (const weftTrainCompression_t method : compressing_methods)
        on_two_threads([&](weftComm_t comm, int own) {
            weftTrainCompressorConfig_t config = config_of(method);
            config.momentum = method == weftTrainOneBit ? 0.5 : 0;
            std::vector<std::byte> state;
            std::vector<float> results[2];
            const auto element = [&](int k) {
                return [own, k](int p, size_t i) { return gradient_element(own, k, p, i); };
            };
            for (const int run : {0, 1}) {
                const OwnCompressor compressor(config);
                if (run == 1)
                    demand(weftTrainCompressorLoad(compressor.get(), state.data(), state.size()) == 0, "load");
                MatrixModel model(comm, compressor.hooked());
                for (int k = run == 0 ? 0 : 3; k < 6; ++k) {
                    if (run == 0 && k == 3) state = compressor.saved();
                    model.iterate(element(k));
                    for (size_t i = 0; k >= 3 && i < 120; ++i) results[run].push_back(model.result()[i]);
                }
            }
            demand(results[0].size() == 360, "results");
            demand(results[0] == results[1], "the result");
        });
}

TEST_CASE("wrong settings, states and contexts of compressors are refused") {
    weftTrainCompressor_t compressor = nullptr;
    const auto refused = [&](auto&& change) {
        weftTrainCompressorConfig_t config = WEFT_TRAIN_COMPRESSOR_CONFIG_INITIALIZER;
        change(config);
        CHECK(weftTrainCompressorCreate(&compressor, &config) == weftInvalidArgument);
        CHECK_ERROR(last_error(), "argument.config");
    };
    refused([](auto& config) { config.magic = 1; });
    refused([](auto& config) { config.size = 8; });
    refused([](auto& config) { config.method = weftTrainCompression_t(5); });
    refused([](auto& config) { config.startIteration = -2; });
    refused([](auto& config) { config.errorFeedback = 2; });
    refused([](auto& config) { config.warmStart = -1; });
    refused([](auto& config) { config.rank = 0; });
    refused([](auto& config) { config.leastRate = 0; });
    refused([](auto& config) { config.density = 1.1; });
    refused([](auto& config) { config.density = std::nan(""); });
    refused([](auto& config) { config.blockCount = 0; });
    refused([](auto& config) { config.momentum = 1; });
    refused([](auto& config) { config.float8 = weftFloat32; });
    CHECK(weftTrainCompressorCreate(nullptr, nullptr) == weftInvalidArgument);
    CHECK(weftTrainCompressorCreate(&compressor, nullptr) == weftInvalidArgument);
    const OwnCompressor own(config_of(weftTrainInt8)), other(config_of(weftTrainTopK));
    auto state = own.saved();
    CHECK(weftTrainCompressorLoad(other.get(), state.data(), state.size()) == weftInvalidUsage);
    CHECK_ERROR(last_error(), "train.compressor");
    CHECK(weftTrainCompressorLoad(own.get(), state.data(), state.size() - 1) == weftInvalidUsage);
    CHECK_ERROR(last_error(), "train.compressor");
    CHECK(weftTrainCompressorLoad(own.get(), nullptr, 0) == weftInvalidArgument);
    size_t bytes = state.size() - 1;
    CHECK(weftTrainCompressorSave(own.get(), state.data(), &bytes) == weftInvalidArgument);
    CHECK(bytes == state.size());
    CHECK(weftTrainHookCompress(nullptr, own.get()) == weftInvalidArgument);
    CHECK(weftTrainHookCompress(nullptr, nullptr) == weftInvalidArgument);
    weftTrainCompressor_t dead = nullptr;
    const auto config = config_of(weftTrainInt8);
    CHECK(weftTrainCompressorCreate(&dead, &config) == weftSuccess);
    CHECK(weftTrainCompressorDestroy(dead) == weftSuccess);
    CHECK(weftTrainCompressorDestroy(dead) == weftInvalidArgument);
    CHECK_ERROR(last_error(), "argument.handle");
}

TEST_CASE("a compressor's settings and model are checked") {
    on_two_threads([&](weftComm_t comm, int own) {
        weftTrainCompressorConfig_t config = config_of(weftTrainInt8);
        config.blockCount = own == 0 ? 32 : 64;
        float numbers[6] = {};
        weftTrainTensor_t tensor = WEFT_TRAIN_TENSOR_INITIALIZER;
        tensor.name = "a";
        tensor.data = numbers;
        tensor.count = 6;
        weftTrainDdp_t ddp = nullptr;
        const OwnCompressor different(config);
        auto hooked = different.hooked();
        demand(weftTrainDdpCreate(&ddp, comm, &tensor, 1, nullptr, 0, &hooked) == weftMismatch, "other settings");
        hooked.hookContext = nullptr;
        demand(weftTrainDdpCreate(&ddp, comm, &tensor, 1, nullptr, 0, &hooked) == weftInvalidArgument, "no compressor");
        tensor.rows = 4;
        hooked.hook = nullptr;
        demand(weftTrainDdpCreate(&ddp, comm, &tensor, 1, nullptr, 0, &hooked) == weftInvalidArgument, "rows");
        // Two models at once: the second would get the first one's unsent gradients.
        {
            const OwnCompressor shared(config_of(weftTrainInt8));
            auto both = shared.hooked();
            weftTrainTensor_t whole = tensor;
            whole.rows = 2;
            MatrixModel model(comm, both);
            demand(weftTrainDdpCreate(&ddp, comm, &whole, 1, nullptr, 0, &both) == weftInvalidUsage, "a second model");
            weftErrorInfo_t info = WEFT_ERROR_INFO_INITIALIZER;
            demand(weftGetLastErrorInfo(nullptr, &info) == weftSuccess && info.id == std::string("train.compressor"),
                   "the id");
            model.iterate([](int, size_t) { return 1; });
            // On one rank only: the others get its sentence.
            const OwnCompressor free(config_of(weftTrainInt8));
            if (own == 0) both.hookContext = free.get();
            demand(weftTrainDdpCreate(&ddp, comm, &whole, 1, nullptr, 0, &both) ==
                       (own == 0 ? weftMismatch : weftInvalidUsage),
                   "a second model on rank 1");
            // State of another model.
            const std::vector<std::byte> state = [] {
                std::vector<CompressorState> states(1);
                states[0].count = 6;
                return bytes_of(weftTrainInt8, states);
            }();
            demand(weftTrainCompressorLoad(shared.get(), state.data(), state.size()) == weftInvalidUsage, "a load");
        }
        // State of another model.
        const OwnCompressor used(config_of(weftTrainInt8));
        {
            MatrixModel model(comm, used.hooked());
            model.iterate([](int, size_t) { return 1; });
        }
        tensor.rows = 2;
        hooked = used.hooked();
        demand(weftTrainDdpCreate(&ddp, comm, &tensor, 1, nullptr, 0, &hooked) == weftInvalidUsage,
               "state of another model");
    });
}
