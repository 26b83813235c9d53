// Statistics of batch norm over ranks, also empty ones, against one process in doubles; and the samples of each rank.
#include <fmt/format.h>
#include <weft/train.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "src/base/arithmetic.hpp"
#include "tests/amount.hpp"
#include "tests/comm/on_threads.hpp"
#include "tests/error.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

bool near(double seen, double expected, double scale = 1) {
    return std::fabs(seen - expected) <= 1e-5 * std::max(scale, std::fabs(expected));
}

// The whole batch, of which each rank has batches[rank] samples.
struct Batch {
    Batch(std::vector<size_t> batch_sizes, size_t channel_count, size_t inner_size, weftDataType_t type)
        : sizes(std::move(batch_sizes)), channels(channel_count), inner(inner_size), datatype(type) {
        std::mt19937 random(seed());
        for (const size_t size : sizes) {
            x.emplace_back(size * channels * inner);
            dy.emplace_back(x.back().size());
            for (size_t i = 0; i < x.back().size(); ++i) {
                x.back()[i] = rounded(float(random()) * 0x1p-32f + float(i / inner % channels));
                dy.back()[i] = rounded(float(random()) * 0x1p-31f - 1);
            }
        }
    }
    float rounded(float value) const {
        if (datatype == weftFloat16) return Arithmetic<weftFloat16>::widen(Arithmetic<weftFloat16>::round(value));
        if (datatype == weftBfloat16) return Arithmetic<weftBfloat16>::widen(Arithmetic<weftBfloat16>::round(value));
        return value;
    }
    // As they lie in memory.
    std::vector<std::byte> memory_of(const std::vector<float>& values) const {
        std::vector<std::byte> bytes(values.size() * 4);
        for (size_t i = 0; i < values.size(); ++i) {
            const uint16_t half = datatype == weftFloat16 ? Arithmetic<weftFloat16>::round(values[i])
                                                          : Arithmetic<weftBfloat16>::round(values[i]);
            if (datatype == weftFloat32)
                memcpy(bytes.data() + 4 * i, &values[i], 4);
            else
                memcpy(bytes.data() + 2 * i, &half, 2);
        }
        return bytes;
    }
    // Calls body(x, dy) for one channel's elements of all ranks, or of one.
    template <class Body>
    void each(size_t channel, int rank, Body&& body) const {
        for (size_t r = 0; r < sizes.size(); ++r)
            for (size_t i = 0; i < x[r].size(); ++i)
                if ((rank < 0 || size_t(rank) == r) && i / inner % channels == channel)
                    body(double(x[r][i]), double(dy[r][i]));
    }
    double count() const {
        size_t sum = 0;
        for (const size_t size : sizes) sum += size * inner;
        return double(sum);
    }
    double mean(size_t channel) const {
        double sum = 0;
        each(channel, -1, [&](double value, double) { sum += value; });
        return sum / count();
    }
    double squares(size_t channel) const {
        double sum = 0;
        const double middle = mean(channel);
        each(channel, -1, [&](double value, double) { sum += (value - middle) * (value - middle); });
        return sum;
    }

    std::vector<size_t> sizes;
    size_t channels, inner;
    weftDataType_t datatype;
    std::vector<std::vector<float>> x, dy;
};

std::string runs(const Batch& batch, weftComm_t comm, int rank) {
    const size_t channels = batch.channels;
    weftTrainBatchNorm_t layer = WEFT_TRAIN_BATCH_NORM_INITIALIZER;
    layer.batch = batch.sizes[size_t(rank)];
    layer.channels = channels;
    layer.inner = batch.inner;
    layer.datatype = batch.datatype;
    std::vector<float> mean(channels), invstd(channels), running_mean(channels, 1), running_variance(channels, 2);
    layer.runningMean = running_mean.data();
    layer.runningVariance = running_variance.data();
    const auto x = batch.memory_of(batch.x[size_t(rank)]), dy = batch.memory_of(batch.dy[size_t(rank)]);
    uint64_t count = 0;
    if (weftTrainBatchNormForward(&layer, layer.batch ? x.data() : nullptr, mean.data(), invstd.data(), &count, comm,
                                  nullptr) != weftSuccess)
        return weftGetLastError(nullptr);
    if (double(count) != batch.count()) return "count";
    std::vector<float> own(2 * channels), all(2 * channels);
    if (weftTrainBatchNormBackward(&layer, layer.batch ? x.data() : nullptr, layer.batch ? dy.data() : nullptr,
                                   mean.data(), own.data(), all.data(), comm, nullptr) != weftSuccess)
        return weftGetLastError(nullptr);
    for (size_t c = 0; c < channels; ++c) {
        const double middle = batch.mean(c), squares = batch.squares(c);
        if (!near(mean[c], middle)) return fmt::format("the mean is {}, not {}", mean[c], middle);
        if (!near(invstd[c], 1 / std::sqrt(squares / batch.count() + 1e-5))) return "invstd";
        if (!near(running_mean[c], 0.9 + 0.1 * middle)) return "running mean";
        if (!near(running_variance[c], 0.9 * 2 + 0.1 * squares / (batch.count() - 1))) return "running variance";
        for (const int of : {-1, rank}) {
            double sum = 0, centred = 0;
            batch.each(c, of, [&](double value, double slope) {
                sum += slope;
                centred += slope * (value - middle);
            });
            const auto& seen = of < 0 ? all : own;
            if (!near(seen[c], sum, 10) || !near(seen[channels + c], centred, 10))
                return fmt::format("the sums are {} and {}, not {} and {}", seen[c], seen[channels + c], sum, centred);
        }
    }
    return "";
}

std::vector<uint64_t> samples_of(uint64_t samples, int ranks, int rank, int drop_last,
                                 const uint64_t* order = nullptr) {
    uint64_t count = 0;
    CHECK(weftTrainSamplerCount(samples, ranks, drop_last, &count) == weftSuccess);
    std::vector<uint64_t> indices(count);
    CHECK(weftTrainSamplerIndices(samples, ranks, rank, drop_last, order, indices.data()) == weftSuccess);
    return indices;
}

}  // namespace

TEST_CASE("batch norm over ranks is that of one process, also with empty ranks") {
    const std::vector<std::vector<size_t>> sizes = {{2}, {3, 1}, {0, 5}, {4, 0, 1}, {1, 2, 3, 4}};
    const std::pair<size_t, size_t> shapes[] = {{1, 1}, {3, 1}, {5, 7}, {2, 1500}};
    for (const auto& each : sizes)
        for (const auto& [channels, inner] : shapes)
            for (const auto type : {weftFloat32, weftFloat16, weftBfloat16}) {
                const Batch batch(each, channels, inner, type);
                CAPTURE(each, channels, inner, int(type));
                for (const std::string& wrong : on_threads(
                         int(each.size()), nullptr, [&](weftComm_t comm, int rank) { return runs(batch, comm, rank); }))
                    CHECK(wrong == "");
            }
}

TEST_CASE("batch norm has the golden values") {
    const auto wrong = on_threads(2, nullptr, [](weftComm_t comm, int rank) -> std::string {
        const float x[2][3] = {{1, 2, 3}, {10, 0, 0}};
        float mean = 0, invstd = 0, running_mean = 0, running_variance = 0;
        uint64_t count = 0;
        weftTrainBatchNorm_t layer = WEFT_TRAIN_BATCH_NORM_INITIALIZER;
        layer.batch = rank == 0 ? 3 : 1;
        layer.epsilon = 0;
        layer.momentum = 1;
        layer.runningMean = &running_mean;
        layer.runningVariance = &running_variance;
        if (weftTrainBatchNormForward(&layer, x[rank], &mean, &invstd, &count, comm, nullptr) != weftSuccess)
            return newest_id();
        return near(mean, 4) && near(1 / invstd / invstd, 12.5) && near(running_variance, 16.6667) && count == 4
                   ? ""
                   : "wrong";
    });
    CHECK(wrong == std::vector<std::string>(2));
}

TEST_CASE("batch norm refuses one element a channel on all ranks, and wrong arguments") {
    const auto wrong = on_threads(2, nullptr, [](weftComm_t comm, int rank) -> std::string {
        float x[1] = {1}, mean = 0, invstd = 0, sums[2] = {};
        weftTrainBatchNorm_t layer = WEFT_TRAIN_BATCH_NORM_INITIALIZER;
        layer.batch = rank == 0 ? 1 : 0;
        std::string seen;
        const auto forward = [&] {
            const auto result = weftTrainBatchNormForward(&layer, x, &mean, &invstd, nullptr, comm, nullptr);
            seen += result == weftSuccess ? "+ " : newest_id() + " ";
        };
        forward();
        layer.channels = 0;
        forward();
        layer.channels = 1;
        layer.datatype = weftFloat64;
        forward();
        layer.datatype = weftFloat32;
        layer.momentum = 2;
        forward();
        layer.momentum = 0.1;
        layer.batch = size_t(1) << 60;
        forward();
        layer.batch = 1;
        layer.size = 8;
        forward();
        layer.size = sizeof layer;
        (void)weftTrainBatchNormBackward(&layer, x, nullptr, &mean, nullptr, sums, comm, nullptr);
        return seen + newest_id();
    });
    CHECK(wrong == std::vector<std::string>(2,
                                            "argument.count argument.value argument.datatype argument.value "
                                            "argument.count argument.config argument.null"));
}

TEST_CASE("each rank takes the samples of DistributedSampler") {
    using Samples = std::vector<std::vector<uint64_t>>;
    const auto all = [](uint64_t samples, int ranks, int drop_last) {
        Samples taken;
        for (int rank = 0; rank < ranks; ++rank) taken.push_back(samples_of(samples, ranks, rank, drop_last));
        return taken;
    };
    CHECK((all(10, 4, 0) == Samples{{0, 4, 8}, {1, 5, 9}, {2, 6, 0}, {3, 7, 1}}));
    CHECK((all(10, 4, 1) == Samples{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
    CHECK((all(2, 5, 0) == Samples{{0}, {1}, {0}, {1}, {0}}));
    CHECK((all(2, 5, 1) == Samples(5)));
    CHECK((all(0, 2, 0) == Samples(2)));
    CHECK((all(8, 4, 0) == all(8, 4, 1)));
    const uint64_t order[] = {9, 7, 5};
    CHECK((samples_of(3, 2, 1, 0, order) == std::vector<uint64_t>{7, 9}));
    uint64_t count = 0;
    CHECK(id_of(weftTrainSamplerCount(1, 0, 0, &count)) == "argument.value");
    CHECK(id_of(weftTrainSamplerCount(1, 1, 2, &count)) == "argument.value");
    CHECK(id_of(weftTrainSamplerCount(1, 1, 0, nullptr)) == "argument.null");
    CHECK(id_of(weftTrainSamplerIndices(1, 2, 2, 0, nullptr, &count)) == "argument.value");
    CHECK(id_of(weftTrainSamplerIndices(1, 2, 1, 0, nullptr, nullptr)) == "argument.null");
}

TEST_CASE("a seed determines an order, and all orders are equally likely") {
    const auto shuffled = [](uint64_t seed, size_t samples) {
        std::vector<uint64_t> order(samples, 99);
        CHECK(weftTrainShuffle(samples, seed, order.data()) == weftSuccess);
        return order;
    };
    // The same on all machines and in all versions: samplers' positions in checkpoints depend on it.
    CHECK((shuffled(0, 8) == std::vector<uint64_t>{2, 5, 0, 3, 4, 6, 1, 7}));
    CHECK((shuffled(5, 1000) == shuffled(5, 1000)));
    CHECK((shuffled(5, 1000) != shuffled(6, 1000)));
    CHECK(id_of(weftTrainShuffle(1, 0, nullptr)) == "argument.null");
    CHECK(weftTrainShuffle(0, 0, nullptr) == weftSuccess);
    int seen[24] = {};
    for (uint64_t seed = 0; seed < 24000; ++seed) {
        const auto order = shuffled(seed, 4);
        auto sorted = order;
        std::sort(sorted.begin(), sorted.end());
        REQUIRE((sorted == std::vector<uint64_t>{0, 1, 2, 3}));
        auto permutation = sorted;
        int number = 0;
        while (permutation != order) {
            std::next_permutation(permutation.begin(), permutation.end());
            ++number;
        }
        ++seen[number];
    }
    for (const int times : seen) CHECK((times > 850 && times < 1150));  // 5 standard deviations
}
