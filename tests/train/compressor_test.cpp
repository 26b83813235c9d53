// Compressing hooks: golden values, the bounds of their errors, error feedback, and their state.
#include <weft/train.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "src/train/hooks/compressed_exchange.hpp"
#include "src/train/hooks/compressor_state.hpp"
#include "src/train/hooks/largest_numbers.hpp"
#include "src/train/hooks/power_sgd.hpp"
#include "src/train/peers.hpp"
#include "tests/comm/on_threads.hpp"
#include "tests/error.hpp"
#include "tests/train/trained_rank.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::train;

namespace {

using Model = std::vector<std::pair<weftDataType_t, size_t>>;
constexpr weftTrainCompression_t methods[] = {weftTrainPowerSgd, weftTrainTopK, weftTrainOneBit, weftTrainInt8,
                                              weftTrainFloat8};

// A compressor that starts at once.
weftTrainCompressorConfig_t config_of(weftTrainCompression_t method) {
    weftTrainCompressorConfig_t config = WEFT_TRAIN_COMPRESSOR_CONFIG_INITIALIZER;
    config.method = method;
    config.startIteration = 0;
    config.momentum = 0;
    config.density = 0.1;
    config.blockCount = 32;
    config.leastRate = 0.5;
    config.rank = 2;
    return config;
}

class Compressor {
  public:
    explicit Compressor(const weftTrainCompressorConfig_t& config) {
        if (weftTrainCompressorCreate(&handle_, &config) != weftSuccess)
            throw std::runtime_error(weftGetLastError(nullptr));
    }
    Compressor(const Compressor&) = delete;
    ~Compressor() { (void)weftTrainCompressorDestroy(handle_); }
    weftTrainCompressor_t get() const { return handle_; }
    weftTrainDdpConfig_t hooked(weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER) const {
        config.hook = weftTrainHookCompress;
        config.hookContext = handle_;
        return config;
    }
    std::vector<std::byte> saved() const {
        size_t bytes = 0;
        (void)weftTrainCompressorSave(handle_, nullptr, &bytes);
        std::vector<std::byte> state(bytes);
        if (weftTrainCompressorSave(handle_, state.data(), &bytes) != weftSuccess) return {};
        return state;
    }

  private:
    weftTrainCompressor_t handle_ = nullptr;
};

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

bool near(double seen, double expected) { return std::fabs(seen - expected) <= 1e-6 * std::fabs(expected) + 1e-7; }

}  // namespace

TEST_CASE("1-bit numbers and errors have golden values") {
    const std::vector<float> numbers = {1, -2, 0, 3};
    OneBitCodec codec;
    codec.begin(numbers);
    std::vector<std::byte> message(codec.bytes(4));
    codec.encode(numbers, message.data());
    std::vector<float> decoded(4);
    codec.decode(message.data(), decoded);
    const double errors[] = {-.8708287, -.1291713, -1.8708287, 1.1291713};
    for (size_t i = 0; i < 4; ++i) {
        CHECK(std::fabs(std::fabs(decoded[i]) - 1.8708287) < 1e-6);
        CHECK(std::fabs(numbers[i] - decoded[i] - errors[i]) < 1e-6);
    }
}

TEST_CASE("PowerSGD has golden values") {
    for (const std::string& wrong : on_threads(2, nullptr, [&](weftComm_t comm, int own) -> std::string {
             auto peers = Peers::make(comm);
             if (!peers) return peers.status().text();
             std::vector<float> numbers = own == 0 ? std::vector<float>{1, 2, 3, 4} : std::vector<float>{5, 6, 7, 8};
             std::vector<float> right = {1, 0}, plain = {float(own), 3};
             const std::vector<LowRankMatrix> matrices = {{numbers.data(), 2, 2, right.data(), 0}};
             const std::vector<std::span<float>> whole = {plain};
             const auto worker = host_hook_worker();
             const Status done = PowerSgd(1).run(**peers, *worker, 2, matrices, whole);
             if (!done) return done.text();
             const double expected[] = {3, 3.7058828, 5, 6.1764712}, factors[] = {5.8309526, 7.2029409};
             for (size_t i = 0; i < 4; ++i)
                 if (!near(numbers[i], expected[i])) return "matrix: " + std::to_string(numbers[i]);
             for (size_t i = 0; i < 2; ++i)
                 if (!near(right[i], factors[i])) return "factor: " + std::to_string(right[i]);
             return plain == std::vector<float>{0.5f, 3} ? "" : "exact averages";
         }))
        CHECK(wrong == "");
}

TEST_CASE("PowerSGD gives matrices of its rank exactly, and dependent columns become zero") {
    std::vector<float> columns = {3, 4, 6, 8, 0, 1};
    (void)host_hook_worker()->orthonormalize(columns.data(), 3, 2);
    CHECK(near(columns[0], .6));
    CHECK((columns[2] == 0 && columns[3] == 0));
    CHECK((near(columns[4], -.8) && near(columns[5], .6)));
    CHECK(is_worth_rank(10, 10, 1, 2));
    CHECK(!is_worth_rank(4, 4, 1, 2));
    for (const std::string& wrong : on_threads(3, nullptr, [&](weftComm_t comm, int own) -> std::string {
             auto peers = Peers::make(comm);
             if (!peers) return peers.status().text();
             constexpr size_t rows = 9, columns = 21;
             std::vector<float> right(2 * columns);
             const auto worker = host_hook_worker();
             PowerSgd power_sgd(2);
             const auto element = [&](int rank, size_t row, size_t column) {
                 return float(rank + 1) * float(row) + float(column) - 2;  // rank 2, also of the sum
             };
             for (int turn = 0; turn < 3; ++turn) {
                 std::vector<float> numbers;
                 for (size_t i = 0; i < rows * columns; ++i)
                     numbers.push_back(turn == 1 ? 0 : element(own, i / columns, i % columns));
                 const std::vector<LowRankMatrix> matrices = {{numbers.data(), rows, columns, right.data(), 7}};
                 const Status done = power_sgd.run(**peers, *worker, 3, matrices, {});
                 if (!done) return done.text();
                 for (size_t i = 0; i < rows * columns; ++i) {
                     const double expected = turn == 1 ? 0 : element(1, i / columns, i % columns);
                     if (std::fabs(numbers[i] - expected) > 1e-3) return "element " + std::to_string(i);
                 }
             }
             return "";
         }))
        CHECK(wrong == "");
}

TEST_CASE("the largest numbers are found with ties and NaNs") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> numbers = {1, -3, 3, 0, nan, -3, 2};
    const auto indices = [&](size_t count) {
        std::vector<uint32_t> found;
        for (const IndexedNumber& each : largest_numbers(numbers, count)) found.push_back(each.index);
        return found;
    };
    CHECK(indices(1) == std::vector<uint32_t>{4});
    CHECK(indices(2) == std::vector<uint32_t>{1, 4});
    CHECK(indices(4) == std::vector<uint32_t>{1, 2, 4, 5});
    CHECK(indices(7).size() == 7);
    CHECK(std::isinf(largest_magnitude(numbers)));
    CHECK(largest_magnitude(std::span(numbers).first(4)) == 3);
}

TEST_CASE("results of all methods are within their bounds, for all types and 1 to 4 ranks") {
    for (const int size : {1, 2, 3, 4})
        for (const weftTrainCompression_t method : methods) {
            CAPTURE(size, int(method));
            for (const std::string& wrong : on_threads(size, nullptr, [&](weftComm_t comm, int) {
                     weftTrainCompressorConfig_t config = config_of(method);
                     config.errorFeedback = 0;
                     // These two are exact so.
                     config.density = 1;
                     config.leastRate = 1e6;
                     const Compressor compressor(config);
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
    for (const weftTrainCompression_t method : methods) {
        CAPTURE(int(method));
        std::vector<std::vector<double>> seen(3);
        for (const std::string& wrong : on_threads(3, nullptr, [&](weftComm_t comm, int own) {
                 const Compressor compressor(config_of(method));
                 weftTrainDdpConfig_t config = compressor.hooked();
                 config.bucketCapBytes = 600;
                 TrainedRank rank(comm, config);
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

// The difference between the sums of all averages and of all results, at most, in iterations with gradients and then
// `zeros` more without. Buckets are rebuilt in the second one. Rank 1 joins after half of them.
double lost(weftTrainCompression_t method, bool feedback, int iterations, int zeros, bool joins,
            weftDataType_t float8 = weftFloat8e4m3) {
    const Model model = {{weftFloat32, 200}, {weftFloat64, 3}, {weftFloat32, 60}, {weftFloat32, 131}};
    double largest = 0;
    for (const std::string& wrong : on_threads(2, nullptr, [&](weftComm_t comm, int own) {
             weftTrainCompressorConfig_t config = config_of(method);
             config.errorFeedback = feedback ? 1 : 0;
             config.float8 = float8;
             const Compressor compressor(config);
             weftTrainDdpConfig_t ddp = compressor.hooked();
             ddp.bucketCapBytes = 500;
             ddp.join = joins ? 1 : 0;
             TrainedRank rank(comm, ddp, model);
             std::vector<double> sums(model.size() * 200), exact(sums.size());
             const auto takes_part = [&](int r, int iteration) {
                 return iteration < iterations && (!joins || r == 0 || iteration < iterations / 2);
             };
             for (int iteration = 0; iteration < iterations + zeros; ++iteration) {
                 if (joins && own == 1 && iteration == iterations / 2) break;
                 rank.begin();
                 for (int p = rank.parameters(); p-- > 0;) {
                     rank.compute(p, iteration);
                     void* memory = nullptr;
                     rank.check(weftTrainDdpGetGradient(rank.ddp(), p, &memory));
                     for (size_t i = 0; i < model[size_t(p)].second && iteration >= iterations; ++i)
                         set_number(memory, model[size_t(p)].first, i, 0);
                     rank.ready(p);
                 }
                 rank.finish();
                 for (int p = 0; p < rank.parameters(); ++p)
                     for (size_t i = 0; i < model[size_t(p)].second; ++i) {
                         sums[size_t(p) * 200 + i] += rank.gradient_at(p, i);
                         for (int r = 0; r < 2; ++r)
                             if (takes_part(r, iteration))
                                 exact[size_t(p) * 200 + i] += gradient_element(r, iteration, p, i) / 2;
                     }
             }
             if (joins) rank.check(weftTrainDdpJoin(rank.ddp(), nullptr));
             for (size_t i = 0; own == 0 && i < sums.size(); ++i) {
                 const double difference = std::fabs(sums[i] - exact[i]);
                 largest = std::isfinite(difference) ? std::max(largest, difference)
                                                     : std::numeric_limits<double>::infinity();
             }
             return rank.wrong();
         }))
        CHECK(wrong == "");
    return largest;
}

TEST_CASE("codecs stay finite for the smallest numbers, and lose at most their rounding") {
    for (const weftDataType_t type : {weftFloat8e4m3, weftFloat8e5m2, weftInt8})
        for (int power = -149; power <= 127; ++power) {
            CAPTURE(int(type), power);
            const std::vector<float> numbers = {std::ldexp(1.f, power), 0, -std::ldexp(1.f, power - 1)};
            std::vector<float> decoded(3);
            const auto pass = [&](Codec& codec) {
                codec.begin(numbers);
                std::vector<std::byte> message(codec.bytes(3));
                codec.encode(numbers, message.data());
                codec.decode(message.data(), decoded);
            };
            Int8Codec int8(32);
            Float8Codec float8(type);
            pass(type == weftInt8 ? static_cast<Codec&>(int8) : float8);
            // Below it numbers count as zero.
            const double least = 57344.0 * std::numeric_limits<float>::min();
            for (size_t i = 0; i < 3; ++i)
                CHECK(std::fabs(double(decoded[i]) - double(numbers[i])) <=
                      std::max(least, std::fabs(double(numbers[0])) / 16));
        }
}

TEST_CASE("residuals of float8 fade away in many iterations without gradients, and nothing becomes NaN") {
    for (const weftDataType_t type : {weftFloat8e4m3, weftFloat8e5m2})
        for (const bool joins : {false, true}) {
            CAPTURE(int(type), joins);
            CHECK(lost(weftTrainFloat8, true, 6, 100, joins, type) < 1e-3);
        }
}

TEST_CASE("with error feedback nothing is lost in the sum over iterations, also of a rank that joined") {
    for (const weftTrainCompression_t method : {weftTrainTopK, weftTrainInt8, weftTrainFloat8}) {
        CAPTURE(int(method));
        for (const bool joins : {false, true}) {
            CHECK(lost(method, true, 6, 12, joins) < 1e-3);
            CHECK(lost(method, false, 6, 12, joins) > 0.02);
        }
    }
    // Signs of the rest do not vanish, but stay as small as one iteration's.
    for (const bool joins : {false, true}) {
        CHECK(lost(weftTrainOneBit, true, 60, 0, joins) < 20);
        CHECK(lost(weftTrainOneBit, false, 60, 0, joins) > 40);
    }
}

namespace {

// One float32 matrix of 12 rows and 10 columns, and a vector.
struct MatrixModel {
    std::vector<float> matrix = std::vector<float>(120), vector = std::vector<float>(5);
    weftTrainDdp_t ddp = nullptr;

    MatrixModel(weftComm_t comm, const weftTrainDdpConfig_t& config) {
        weftTrainTensor_t tensors[2] = {WEFT_TRAIN_TENSOR_INITIALIZER, WEFT_TRAIN_TENSOR_INITIALIZER};
        tensors[0].name = "matrix";
        tensors[0].data = matrix.data();
        tensors[0].count = matrix.size();
        tensors[0].rows = 12;
        tensors[1].name = "vector";
        tensors[1].data = vector.data();
        tensors[1].count = vector.size();
        demand(weftTrainDdpCreate(&ddp, comm, tensors, 2, nullptr, 0, &config));
        demand(weftBarrier(comm, nullptr));
    }
    MatrixModel(const MatrixModel&) = delete;
    ~MatrixModel() { (void)weftTrainDdpDestroy(ddp); }
    static void demand(weftResult_t result) {
        if (result != weftSuccess) throw std::runtime_error(weftGetLastError(nullptr));
    }
    float* gradient(int parameter) const {
        void* memory = nullptr;
        demand(weftTrainDdpGetGradient(ddp, parameter, &memory));
        return static_cast<float*>(memory);
    }
    template <class Element>
    void iterate(Element&& element) {
        demand(weftTrainDdpBegin(ddp, weftTrainSynchronize, nullptr));
        for (const int p : {0, 1}) {
            float* const memory = gradient(p);
            for (size_t i = 0; i < (p == 0 ? 120 : 5); ++i) memory[i] = float(element(p, i));
            demand(weftTrainDdpGradientReady(ddp, p, nullptr));
        }
        demand(weftTrainDdpFinish(ddp, nullptr));
    }
};

template <class Body>
void on_two_threads(Body&& body) {
    for (const std::string& wrong : on_threads(2, nullptr, [&](weftComm_t comm, int own) -> std::string {
             try {
                 body(comm, own);
             } catch (const std::exception& error) {
                 return error.what();
             }
             return "";
         }))
        CHECK(wrong == "");
}

void demand(bool right, const char* what) {
    if (!right) throw std::runtime_error(what);
}

}  // namespace

TEST_CASE("PowerSGD sends vectors exactly, and the same gradient again and again comes through") {
    // With small buckets the matrix moves from the second one to the first one after the first iteration.
    for (const auto& [warm, bucket] : {std::pair(true, 0), std::pair(false, 0), std::pair(true, 100)})
        on_two_threads([&, warm = warm, bucket = bucket](weftComm_t comm, int own) {
            weftTrainCompressorConfig_t config = config_of(weftTrainPowerSgd);
            config.warmStart = warm ? 1 : 0;
            const Compressor compressor(config);
            weftTrainDdpConfig_t hooked = compressor.hooked();
            if (bucket > 0) hooked.bucketCapBytes = size_t(bucket);
            MatrixModel model(comm, hooked);
            std::vector<double> sum(120);
            double first = 0, last = 0;
            const int iterations = 60;
            for (int k = 0; k < iterations; ++k) {
                model.iterate([&](int p, size_t i) { return gradient_element(own, 0, p, i); });
                for (size_t i = 0; i < 5; ++i) demand(near(model.gradient(1)[i], average_of(2, 0, 1, i)), "a vector");
                last = 0;
                for (size_t i = 0; i < 120; ++i) {
                    sum[i] += model.gradient(0)[i];
                    last = std::max(last, std::fabs(sum[i] / (k + 1) - average_of(2, 0, 0, i)));
                }
                if (k == 0) first = last;
            }
            demand(first > 1 && last < first / 5, "the mean of the results");
        });
}

namespace {

// Random numbers that all ranks find.
double noise(int a, int b, size_t i) {
    std::mt19937 random(unsigned(a * 7919 + b * 104729 + 1));
    random.discard(i);
    return double(random() % 2001) / 1000 - 1;
}

// The largest difference from exact averages: of a result, and of the sum over all iterations. Rank r has inputs for
// `inputs[r]` iterations, and joins. `element(rank, iteration, i)` is of the matrix.
template <class Element>
std::pair<double, double> lost_by_power_sgd(const std::vector<int>& inputs, bool feedback, weftTrainDivisor_t divisor,
                                            Element&& element) {
    const int ranks = int(inputs.size());
    double result = 0, total = 0;
    for (const std::string& wrong : on_threads(ranks, nullptr, [&](weftComm_t comm, int own) -> std::string {
             try {
                 weftTrainCompressorConfig_t config = config_of(weftTrainPowerSgd);
                 config.errorFeedback = feedback ? 1 : 0;
                 const Compressor compressor(config);
                 weftTrainDdpConfig_t hooked = compressor.hooked();
                 hooked.join = 1;
                 hooked.divisor = divisor;
                 MatrixModel model(comm, hooked);
                 std::vector<double> sums(120), exact(120);
                 for (int k = 0; k < inputs[size_t(own)]; ++k) {
                     model.iterate([&](int p, size_t i) { return p == 0 ? element(own, k, i) : 0; });
                     const auto active =
                         std::count_if(inputs.begin(), inputs.end(), [&](int count) { return k < count; });
                     for (size_t i = 0; i < 120; ++i) {
                         double average = 0;
                         for (int r = 0; r < ranks; ++r)
                             if (k < inputs[size_t(r)]) average += element(r, k, i);
                         average /= divisor == weftTrainDivideByActive ? double(active) : ranks;
                         sums[i] += model.gradient(0)[i];
                         exact[i] += average;
                         if (own == 0) result = std::max(result, std::fabs(model.gradient(0)[i] - average));
                     }
                 }
                 MatrixModel::demand(weftTrainDdpJoin(model.ddp, nullptr));
                 for (size_t i = 0; own == 0 && i < 120; ++i) total = std::max(total, std::fabs(sums[i] - exact[i]));
             } catch (const std::exception& error) {
                 return error.what();
             }
             return "";
         }))
        CHECK(wrong == "");
    return {result, total};
}

}  // namespace

TEST_CASE("PowerSGD goes on with the ranks that have not joined") {
    // Matrices of its rank, 2, are exact: a joined rank adds zeros, and all others divide alike.
    const auto of_rank_two = [](int r, int k, size_t i) {
        double sum = 0;
        for (const int part : {0, 1})
            sum += noise(r, k, size_t(part)) * noise(50 + part, 0, i / 10) * noise(60 + part, 0, i % 10);
        return sum;
    };
    for (const weftTrainDivisor_t divisor : {weftTrainDivideByRanks, weftTrainDivideByActive})
        for (const std::vector<int>& inputs : {std::vector<int>{5, 2, 3}, {4, 0}, {3}})
            CHECK(lost_by_power_sgd(inputs, true, divisor, of_rank_two).first < 1e-4);
    // The rest of a rank that has joined is sent later: 40 iterations without gradients follow.
    const auto any = [](int r, int k, size_t i) { return k < 4 ? noise(r, k, i) : 0; };
    CHECK(lost_by_power_sgd({44, 4}, true, weftTrainDivideByRanks, any).second < 1e-3);
    CHECK(lost_by_power_sgd({44, 4}, false, weftTrainDivideByRanks, any).second > 0.1);
}

TEST_CASE("exact iterations come first, and 1-bit momentum follows them") {
    on_two_threads([&](weftComm_t comm, int own) {
        weftTrainCompressorConfig_t config = config_of(weftTrainOneBit);
        config.momentum = 0.5;
        config.startIteration = 2;
        const Compressor compressor(config);
        MatrixModel model(comm, compressor.hooked());
        // Of one magnitude, so that signs are exact. Momentum: 1, 2.5, then 3.25 times the sign.
        const double scales[] = {2, 4, 4};
        const double results[] = {2, 4, 3.25};
        for (int k = 0; k < 3; ++k) {
            model.iterate([&](int, size_t i) { return scales[k] * (i % 3 == 0 ? -1 : 1) + (own == 0 ? 0 : 0); });
            for (size_t i = 0; i < 120; ++i)
                demand(near(model.gradient(0)[i], results[k] * (i % 3 == 0 ? -1 : 1)), "momentum");
        }
    });
}

namespace {

struct Adam {
    weftTrainOptimizer_t optimizer = nullptr;

    // Of the matrix.
    Adam(MatrixModel& model, double beta1, double beta2) {
        weftTrainPart_t part = WEFT_TRAIN_PART_INITIALIZER;
        part.name = "matrix";
        part.values = model.matrix.data();
        part.gradient = model.gradient(0);
        part.count = model.matrix.size();
        weftTrainOptimizerConfig_t config = WEFT_TRAIN_OPTIMIZER_CONFIG_INITIALIZER;
        config.algorithm = weftTrainAdamW;
        config.beta1 = beta1;
        config.beta2 = beta2;
        config.weightDecay = 0.1;
        config.biasCorrection = 0;
        MatrixModel::demand(weftTrainOptimizerCreate(&optimizer, &part, 1, nullptr, 0, &config));
    }
    Adam(const Adam&) = delete;
    ~Adam() { (void)weftTrainOptimizerDestroy(optimizer); }
    std::span<float> second() const {
        const char* name = nullptr;
        float* values = nullptr;
        MatrixModel::demand(weftTrainOptimizerGetState(optimizer, 0, 1, &name, &values));
        return {values, 120};
    }
    void step(float* gradient) const {
        MatrixModel::demand(weftTrainOptimizerSetGradient(optimizer, 0, gradient));
        MatrixModel::demand(weftTrainOptimizerStep(optimizer, 0.01, 1, 0, nullptr));
    }
};

}  // namespace

TEST_CASE("1-bit Adam by the guide's recipe follows its formula") {
    on_two_threads([&](weftComm_t comm, int) {
        constexpr int exact = 5, steps = 12;
        weftTrainCompressorConfig_t config = config_of(weftTrainOneBit);
        config.momentum = 0.9;
        config.startIteration = exact;
        const Compressor compressor(config);
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
                demand(std::fabs(model.matrix[i] - w[i]) < 1e-5, "a weight");
            }
        }
        demand(std::equal(warm.second().begin(), warm.second().end(), frozen.second().begin()), "the frozen moment");
    });
}

TEST_CASE("what is not finite reaches all ranks, and leaves the state alone") {
    for (const weftTrainCompression_t method : methods)
        for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()})
            on_two_threads([&](weftComm_t comm, int own) {
                const Compressor compressor(config_of(method));
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
                for (size_t i = 0; i < 120; ++i) finite &= std::isfinite(model.gradient(0)[i]);
                demand(!finite, "a result that is not finite");
                model.iterate([&](int p, size_t i) { return gradient_element(own, 3, p, i); });
                for (size_t i = 0; i < 120; ++i) demand(std::isfinite(model.gradient(0)[i]), "the next iteration");
            });
}

TEST_CASE("a compressor goes on from its saved state") {
    for (const weftTrainCompression_t method : methods)
        on_two_threads([&](weftComm_t comm, int own) {
            weftTrainCompressorConfig_t config = config_of(method);
            config.momentum = method == weftTrainOneBit ? 0.5 : 0;
            std::vector<std::byte> state;
            std::vector<float> results[2];
            const auto element = [&](int k) {
                return [own, k](int p, size_t i) { return gradient_element(own, k, p, i); };
            };
            for (const int run : {0, 1}) {
                const Compressor compressor(config);
                if (run == 1)
                    demand(weftTrainCompressorLoad(compressor.get(), state.data(), state.size()) == 0, "load");
                MatrixModel model(comm, compressor.hooked());
                for (int k = run == 0 ? 0 : 3; k < 6; ++k) {
                    if (run == 0 && k == 3) state = compressor.saved();
                    model.iterate(element(k));
                    for (size_t i = 0; k >= 3 && i < 120; ++i) results[run].push_back(model.gradient(0)[i]);
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
    const Compressor own(config_of(weftTrainInt8)), other(config_of(weftTrainTopK));
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
        const Compressor different(config);
        auto hooked = different.hooked();
        demand(weftTrainDdpCreate(&ddp, comm, &tensor, 1, nullptr, 0, &hooked) == weftMismatch, "other settings");
        hooked.hookContext = nullptr;
        demand(weftTrainDdpCreate(&ddp, comm, &tensor, 1, nullptr, 0, &hooked) == weftInvalidArgument, "no compressor");
        tensor.rows = 4;
        hooked.hook = nullptr;
        demand(weftTrainDdpCreate(&ddp, comm, &tensor, 1, nullptr, 0, &hooked) == weftInvalidArgument, "rows");
        // Two models at once: the second would get the first one's unsent gradients.
        {
            const Compressor shared(config_of(weftTrainInt8));
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
            const Compressor free(config_of(weftTrainInt8));
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
        const Compressor used(config_of(weftTrainInt8));
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
