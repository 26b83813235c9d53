// Compressing hooks: golden values, and losses over many iterations and by Join. Averages in 16 bits. In host memory or on
// devices, as the program has it.
#include <weft/train.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "src/train/flat_buffer.hpp"
#include "src/train/hooks/hook_worker.hpp"
#include "src/train/hooks/power_sgd.hpp"
#include "src/train/peers.hpp"
#include "tests/amount.hpp"
#include "tests/train/hooked_model.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::train;

namespace {

bool near(double seen, double expected) { return std::fabs(seen - expected) <= 1e-6 * std::fabs(expected) + 1e-7; }

// A worker of a rank, and memory of its kind.
class Workplace {
  public:
    explicit Workplace(int rank)
        : worker_(need(hook_worker(program_has_devices ? rank % fake_devices : -1))), space_(worker_->space()) {}

    HookWorker& worker() { return *worker_; }
    template <class Element>
    std::shared_ptr<Element> memory(size_t count) {
        return std::static_pointer_cast<Element>(need(space_.allocate(count * sizeof(Element))));
    }
    std::shared_ptr<float> copied(const std::vector<float>& numbers) {
        auto to = memory<float>(numbers.size());
        need(space_.copy(to.get(), numbers.data(), numbers.size() * sizeof(float)));
        need(space_.synchronize());
        return to;
    }
    template <class Element>
    std::vector<Element> read(const std::shared_ptr<Element>& from, size_t count) {
        std::vector<Element> numbers(count);
        need(space_.copy(numbers.data(), from.get(), count * sizeof(Element)));
        need(space_.synchronize());
        return numbers;
    }

  private:
    std::unique_ptr<HookWorker> worker_;
    MemorySpace& space_;
};

// The numbers after encoding and decoding.
std::vector<float> decoded(Workplace& place, const MessageForm& form, const std::vector<float>& numbers) {
    const auto from = place.copied(numbers), to = place.memory<float>(numbers.size());
    const auto message = place.memory<std::byte>(form.bytes(numbers.size()));
    need(place.worker().begin_message(form, from.get(), numbers.size()));
    need(place.worker().encode(form, from.get(), numbers.size(), message.get()));
    need(place.worker().decode(form, message.get(), numbers.size(), to.get()));
    return place.read(to, numbers.size());
}

void demand(bool right, const std::string& what) {
    if (!right) throw std::runtime_error(what);
}

template <class Body>
void on_all(int ranks, Body&& body) {
    const auto run = [&](weftComm_t comm, int rank) {
        body(comm, rank);
        return std::string();
    };
    for (const std::string& wrong : on_ranks(ranks, program_has_devices, run)) CHECK(wrong == "");
}

}  // namespace

TEST_CASE("1-bit numbers and errors have golden values") {
    Workplace place(0);
    const std::vector<float> numbers = {1, -2, 0, 3};
    const auto seen = decoded(place, {weftTrainOneBit}, numbers);
    const double errors[] = {-.8708287, -.1291713, -1.8708287, 1.1291713};
    for (size_t i = 0; i < 4; ++i) {
        CHECK(std::fabs(std::fabs(seen[i]) - 1.8708287) < 1e-6);
        CHECK(std::fabs(numbers[i] - seen[i] - errors[i]) < 1e-6);
    }
}

TEST_CASE("PowerSGD has golden values") {
    on_all(2, [](weftComm_t comm, int own) {
        const auto peers = need(Peers::make(comm));
        Workplace place(own);
        const auto numbers = place.copied(own == 0 ? std::vector<float>{1, 2, 3, 4} : std::vector<float>{5, 6, 7, 8});
        const auto right = place.copied({1, 0}), plain = place.copied({float(own), 3});
        const std::vector<LowRankMatrix> matrices = {{numbers.get(), 2, 2, right.get(), 0}};
        const std::vector<std::span<float>> whole = {{plain.get(), 2}};
        PowerSgd power_sgd(1);
        need(power_sgd.run(*peers, place.worker(), 2, matrices, whole));
        const double expected[] = {3, 3.7058828, 5, 6.1764712}, factors[] = {5.8309526, 7.2029409};
        for (size_t i = 0; i < 4; ++i) demand(near(place.read(numbers, 4)[i], expected[i]), "the matrix");
        for (size_t i = 0; i < 2; ++i) demand(near(place.read(right, 2)[i], factors[i]), "the right factor");
        demand(place.read(plain, 2) == std::vector<float>{0.5f, 3}, "exact averages");
    });
}

TEST_CASE("PowerSGD gives matrices of its rank exactly, and dependent columns become zero") {
    Workplace lone(0);
    const auto vectors = lone.copied({3, 4, 6, 8, 0, 1});
    need(lone.worker().orthonormalize(vectors.get(), 3, 2));
    const auto seen = lone.read(vectors, 6);
    CHECK(near(seen[0], .6));
    CHECK((seen[2] == 0 && seen[3] == 0));
    CHECK((near(seen[4], -.8) && near(seen[5], .6)));
    CHECK(is_worth_rank(10, 10, 1, 2));
    CHECK(!is_worth_rank(4, 4, 1, 2));
    on_all(3, [](weftComm_t comm, int own) {
        const auto peers = need(Peers::make(comm));
        Workplace place(own);
        constexpr size_t rows = 9, columns = 21;
        const auto right = place.copied(std::vector<float>(2 * columns));
        PowerSgd power_sgd(2);
        const auto element = [&](int rank, size_t row, size_t column) {
            return float(rank + 1) * float(row) + float(column) - 2;  // rank 2, also of the sum
        };
        for (int turn = 0; turn < 3; ++turn) {
            std::vector<float> sent;
            for (size_t i = 0; i < rows * columns; ++i)
                sent.push_back(turn == 1 ? 0 : element(own, i / columns, i % columns));
            const auto numbers = place.copied(sent);
            const std::vector<LowRankMatrix> matrices = {{numbers.get(), rows, columns, right.get(), 7}};
            need(power_sgd.run(*peers, place.worker(), 3, matrices, {}));
            const auto results = place.read(numbers, rows * columns);
            for (size_t i = 0; i < rows * columns; ++i) {
                const double expected = turn == 1 ? 0 : element(1, i / columns, i % columns);
                demand(std::fabs(results[i] - expected) <= 1e-3, "element " + std::to_string(i));
            }
        }
    });
}

TEST_CASE("the largest numbers are found with ties and NaNs") {
    Workplace place(0);
    const auto numbers = place.copied({1, -3, 3, 0, std::numeric_limits<float>::quiet_NaN(), -3, 2});
    const auto indices = [&](size_t count) {
        const auto list = place.memory<IndexedNumber>(count);
        need(place.worker().select(numbers.get(), 7, count, list.get()));
        std::vector<uint32_t> found;
        for (const IndexedNumber& each : place.read(list, count)) found.push_back(each.index);
        return found;
    };
    CHECK(indices(1) == std::vector<uint32_t>{4});
    CHECK(indices(2) == std::vector<uint32_t>{1, 4});
    CHECK(indices(4) == std::vector<uint32_t>{1, 2, 4, 5});
    CHECK(indices(7).size() == 7);
}

TEST_CASE("codecs stay finite for the smallest numbers, and lose at most their rounding") {
    Workplace place(0);
    const MessageForm forms[] = {
        {weftTrainFloat8, 256, weftFloat8e4m3}, {weftTrainFloat8, 256, weftFloat8e5m2}, {weftTrainInt8, 32}};
    for (const MessageForm& form : forms)
        for (int power = -149; power <= 127; ++power) {
            CAPTURE(int(form.method), int(form.float8), power);
            const std::vector<float> numbers = {std::ldexp(1.f, power), 0, -std::ldexp(1.f, power - 1)};
            const auto seen = decoded(place, form, numbers);
            // Below it numbers count as zero.
            const double least = 57344.0 * std::numeric_limits<float>::min();
            for (size_t i = 0; i < 3; ++i)
                CHECK(std::fabs(double(seen[i]) - double(numbers[i])) <=
                      std::max(least, std::fabs(double(numbers[0])) / 16));
        }
}

namespace {

// The fake driver is slow, so devices take the form with more rules.
std::vector<bool> joined_or_not() { return program_has_devices ? std::vector{true} : std::vector{false, true}; }
// Whether a small test on devices leaves this case out.
bool skips_on_devices() {
    static std::mt19937 random(seed());
    return program_has_devices && small() && random() % 2 != 0;
}

// The inputs of the ranks: rank r has so many iterations, and joins the others' after them.
struct Inputs {
    std::vector<int> iterations;
    weftTrainDivisor_t divisor = weftTrainDivideByRanks;

    int ranks() const { return int(iterations.size()); }
    bool join() const {
        return std::adjacent_find(iterations.begin(), iterations.end(), std::not_equal_to()) != iterations.end();
    }
    bool has(int rank, int k) const { return k < iterations[size_t(rank)]; }
    // Of element(rank).
    template <class Element>
    double average(int k, Element&& element) const {
        double sum = 0;
        int active = 0;
        for (int r = 0; r < ranks(); ++r)
            if (has(r, k)) sum += element(r), ++active;
        return sum / (divisor == weftTrainDivideByActive ? active : ranks());
    }
};

// The largest differences from exact averages on rank 0, which has the most inputs: of a result, and of the sums over all
// iterations.
struct Lost {
    double result = 0, total = 0;
    void add(double& largest, double difference) {
        largest = std::isfinite(difference) ? std::max(largest, difference) : std::numeric_limits<double>::infinity();
    }
};

// element(rank, iteration, parameter, i). Buckets of `cap` bytes are rebuilt in the second iteration.
template <class Element>
Lost lost(const weftTrainCompressorConfig_t& config, const std::vector<TensorOfTest>& tensors, const Inputs& inputs,
          size_t cap, Element&& element) {
    Lost lost;
    on_all(inputs.ranks(), [&](weftComm_t comm, int own) {
        const OwnCompressor compressor(config);
        weftTrainDdpConfig_t hooked = compressor.hooked(cap);
        hooked.join = inputs.join() ? 1 : 0;
        hooked.divisor = inputs.divisor;
        HookedModel model(comm, program_has_devices, tensors, hooked);
        std::vector<std::vector<double>> rests;  // of the sums
        for (const TensorOfTest& each : tensors) rests.emplace_back(each.count);
        for (int k = 0; inputs.has(own, k); ++k) {
            model.iterate([&](int p, size_t i) { return element(own, k, p, i); });
            for (size_t p = 0; own == 0 && p < tensors.size(); ++p) {
                const std::vector<double> numbers = model.numbers(p);
                for (size_t i = 0; i < numbers.size(); ++i) {
                    const double average = inputs.average(k, [&](int r) { return element(r, k, int(p), i); });
                    rests[p][i] += numbers[i] - average;
                    lost.add(lost.result, std::fabs(numbers[i] - average));
                }
            }
        }
        if (inputs.join()) model.join();
        for (const std::vector<double>& each : rests)
            for (const double rest : each)
                if (own == 0) lost.add(lost.total, std::fabs(rest));
    });
    return lost;
}

// The largest loss in the sums after iterations with gradients and then `zeros` more without. Rank 1 joins after half of the
// first ones.
double lost_by(weftTrainCompression_t method, bool feedback, int iterations, int zeros, bool joins,
               weftDataType_t float8 = weftFloat8e4m3) {
    weftTrainCompressorConfig_t config = config_of(method);
    config.errorFeedback = feedback ? 1 : 0;
    config.float8 = float8;
    const int all = iterations + zeros;
    const auto element = [&](int rank, int k, int p, size_t i) {
        return k < iterations ? gradient_element(rank, k, p, i) : 0;
    };
    const std::vector<TensorOfTest> tensors = {
        {weftFloat32, 200}, {weftFloat64, 3}, {weftFloat32, 60}, {weftFloat32, 131}};
    return lost(config, tensors, {{all, joins ? iterations / 2 : all}}, 500, element).total;
}

}  // namespace

TEST_CASE("residuals of float8 fade away in many iterations without gradients, and nothing becomes NaN") {
    for (const weftDataType_t type : {weftFloat8e4m3, weftFloat8e5m2})
        for (const bool joins : joined_or_not()) {
            if (skips_on_devices()) continue;
            CAPTURE(int(type), joins);
            CHECK(lost_by(weftTrainFloat8, true, 6, 100, joins, type) < 1e-3);
        }
}

TEST_CASE("with error feedback nothing is lost in the sum over iterations, also of a rank that joined") {
    for (const weftTrainCompression_t method : {weftTrainTopK, weftTrainInt8, weftTrainFloat8}) {
        CAPTURE(int(method));
        for (const bool joins : joined_or_not()) {
            if (skips_on_devices()) continue;
            CHECK(lost_by(method, true, 6, 12, joins) < 1e-3);
            CHECK(lost_by(method, false, 6, 12, joins) > 0.02);
        }
    }
    // Signs of the rest do not vanish, but stay as small as one iteration's.
    for (const bool joins : joined_or_not()) {
        if (skips_on_devices()) continue;
        CHECK(lost_by(weftTrainOneBit, true, 60, 0, joins) < 20);
        CHECK(lost_by(weftTrainOneBit, false, 60, 0, joins) > 40);
    }
}

namespace {

// One matrix of 12 rows and 10 columns, and a vector.
const std::vector<TensorOfTest> matrix_and_vector = {{weftFloat32, 120, 12}, {weftFloat32, 5}};

// Random numbers that all ranks find.
double noise(int a, int b, size_t i) {
    std::mt19937 random(unsigned(a * 7919 + b * 104729 + 1));
    random.discard(i);
    return double(random() % 2001) / 1000 - 1;
}

template <class Element>
Lost lost_by_power_sgd(const Inputs& inputs, bool feedback, Element&& element) {
    weftTrainCompressorConfig_t config = config_of(weftTrainPowerSgd);
    config.errorFeedback = feedback ? 1 : 0;
    const auto of_matrix = [&](int rank, int k, int p, size_t i) { return p == 0 ? element(rank, k, i) : 0; };
    return lost(config, matrix_and_vector, inputs, 0, of_matrix);
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
        for (const std::vector<int>& iterations : {std::vector<int>{5, 2, 3}, {4, 0}, {3}})
            CHECK(lost_by_power_sgd({iterations, divisor}, true, of_rank_two).result < 1e-4);
    // The rest of a rank that has joined is sent later: 40 iterations without gradients follow.
    const auto any = [](int r, int k, size_t i) { return k < 4 ? noise(r, k, i) : 0; };
    CHECK(lost_by_power_sgd({{44, 4}}, true, any).total < 1e-3);
    CHECK(lost_by_power_sgd({{44, 4}}, false, any).total > 0.1);
}

TEST_CASE("PowerSGD sends vectors exactly, and the same gradient again and again comes through") {
    // With small buckets the matrix moves from the second one to the first one after the first iteration.
    for (const auto& [warm, cap] : {std::pair(true, 0), std::pair(false, 0), std::pair(true, 100)})
        on_all(2, [&, warm = warm, cap = cap](weftComm_t comm, int own) {
            weftTrainCompressorConfig_t config = config_of(weftTrainPowerSgd);
            config.warmStart = warm ? 1 : 0;
            const OwnCompressor compressor(config);
            HookedModel model(comm, program_has_devices, matrix_and_vector, compressor.hooked(size_t(cap)));
            const auto average = [](int p, size_t i) {
                return (gradient_element(0, 0, p, i) + gradient_element(1, 0, p, i)) / 2;
            };
            std::vector<double> sum(120);
            double first = 0, last = 0;
            for (int k = 0; k < 60; ++k) {
                model.iterate([&](int p, size_t i) { return gradient_element(own, 0, p, i); });
                const std::vector<double> matrix = model.numbers(0), vector = model.numbers(1);
                for (size_t i = 0; i < 5; ++i) demand(near(vector[i], average(1, i)), "a vector");
                last = 0;
                for (size_t i = 0; i < 120; ++i) {
                    sum[i] += matrix[i];
                    last = std::max(last, std::fabs(sum[i] / (k + 1) - average(0, i)));
                }
                if (k == 0) first = last;
            }
            demand(first > 1 && last < first / 5, "the mean of the results");
        });
}

TEST_CASE("exact iterations come first, and 1-bit momentum follows them") {
    on_all(2, [](weftComm_t comm, int) {
        weftTrainCompressorConfig_t config = config_of(weftTrainOneBit);
        config.momentum = 0.5;
        config.startIteration = 2;
        const OwnCompressor compressor(config);
        HookedModel model(comm, program_has_devices, matrix_and_vector, compressor.hooked());
        // Of one magnitude, so that signs are exact. Momentum: 1, 2.5, then 3.25 times the sign.
        const double scales[] = {2, 4, 4};
        const double results[] = {2, 4, 3.25};
        for (int k = 0; k < 3; ++k) {
            model.iterate([&](int, size_t i) { return scales[k] * (i % 3 == 0 ? -1 : 1); });
            const std::vector<double> matrix = model.numbers(0);
            for (size_t i = 0; i < 120; ++i) demand(near(matrix[i], results[k] * (i % 3 == 0 ? -1 : 1)), "momentum");
        }
    });
}

TEST_CASE("1-bit momentum keeps its size after ranks have joined, with each divisor") {
    for (const weftTrainDivisor_t divisor : {weftTrainDivideByRanks, weftTrainDivideByActive}) {
        const Inputs inputs = {{12, 12, 3}, divisor};
        on_all(inputs.ranks(), [&](weftComm_t comm, int own) {
            weftTrainCompressorConfig_t config = config_of(weftTrainOneBit);
            config.momentum = 0.9;
            config.startIteration = 1;
            const OwnCompressor compressor(config);
            weftTrainDdpConfig_t hooked = compressor.hooked();
            hooked.join = 1;
            hooked.divisor = divisor;
            HookedModel model(comm, program_has_devices, matrix_and_vector, hooked);
            double momentum = 0;
            for (int k = 0; inputs.has(own, k); ++k) {
                // Of one magnitude on each rank, so that signs are exact.
                const auto size = [&](int rank) { return double((rank + 1) * (k % 3 + 1)); };
                model.iterate([&](int, size_t i) { return size(own) * (i % 3 == 0 ? -1 : 1); });
                const double average = inputs.average(k, size);
                momentum = 0.9 * momentum + 0.1 * average;
                const std::vector<double> matrix = model.numbers(0);
                for (size_t i = 0; i < 120; ++i)
                    demand(std::fabs(std::fabs(matrix[i]) - (k == 0 ? average : momentum)) < 1e-4, "the size");
            }
            model.join();
        });
    }
}

TEST_CASE("an iteration that accumulates sends nothing, and the hook compresses the sum") {
    for (const weftTrainCompression_t method : compressing_methods) {
        CAPTURE(int(method));
        on_all(2, [&](weftComm_t comm, int own) {
            weftTrainCompressorConfig_t config = config_of(method);
            config.momentum = method == weftTrainOneBit ? 0.5 : 0;
            Bytes results[2], states[2];
            for (const bool accumulates : {false, true}) {
                const OwnCompressor compressor(config);
                HookedModel model(comm, program_has_devices, matrix_and_vector, compressor.hooked());
                for (int k = 0; k < 3; ++k) {
                    const auto whole = [&](int p, size_t i) { return gradient_element(own, k, p, i); };
                    const auto half = [&](int p, size_t i) { return whole(p, i) / 2; };
                    if (accumulates) model.iterate(half, weftTrainAccumulate);
                    if (accumulates) demand(model.numbers(0)[7] == half(0, 7), "a gradient was changed");
                    model.iterate(whole);
                }
                results[accumulates] = model.result();
                states[accumulates] = compressor.saved();
            }
            demand(results[0] == results[1], "the result");
            demand(states[0] == states[1], "the state");
        });
    }
}

TEST_CASE("gradients of 16 bits are divided exactly after a rank has joined") {
    struct Row {
        weftDataType_t type, sent;
        weftTrainHook_t hook;
    };
    for (const auto& [type, sent, hook] :
         {Row{weftBfloat16, weftBfloat16, nullptr}, Row{weftFloat16, weftFloat16, nullptr},
          Row{weftFloat32, weftBfloat16, weftTrainHookBfloat16}, Row{weftFloat32, weftFloat16, weftTrainHookFloat16}}) {
        CAPTURE(int(type), int(sent));
        on_all(4, [&, type = type, sent = sent, hook = hook](weftComm_t comm, int own) {
            weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
            config.join = 1;
            config.divisor = weftTrainDivideByActive;
            config.hook = hook;
            HookedModel model(comm, program_has_devices, {{type, 128}}, config);
            for (int k = 0; own != 3 && k < 2; ++k) {
                model.iterate([&](int, size_t i) { return own == k ? double(128 + i) : 0; });
                const std::vector<double> seen = model.numbers(0);
                for (size_t i = 0; i < 128; ++i) {
                    uint16_t rounded = 0;
                    set_number(&rounded, sent, 0, double(128 + i) / 3);
                    demand(seen[i] == number_at(&rounded, sent, 0), "element " + std::to_string(i));
                }
            }
            model.join();
        });
    }
}
