// Norms of sharded and replicated gradients over one or two mesh axes, clipping, and the loss scale.
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

// Gradients on a mesh of rows x columns ranks. Part p is sharded over axis 0 if p & 1, and over axis 1 if p & 2.
class Gradients {
  public:
    static constexpr weftDataType_t types[] = {weftFloat32, weftFloat16, weftBfloat16};

    // `place`: of the rank in its row and in its column.
    Gradients(int first, int second, const int (&sizes)[2], double factor) {
        std::mt19937 random(seed());
        for (int p = 0; p < 8; ++p) {
            const size_t pieces = size_t(p & 1 ? sizes[0] : 1) * size_t(p & 2 ? sizes[1] : 1);
            const size_t own = size_t(p & 1 ? first : 0) + size_t(p & 2 ? second : 0) * size_t(p & 1 ? sizes[0] : 1);
            std::vector<float> mine;
            for (size_t piece = 0; piece < pieces; ++piece)
                for (size_t i = 0; i < (p == 5 ? piece : 1200 + piece); ++i) {  // part 5 is empty on some ranks
                    const float element = rounded(float((double(random()) * 0x1p-31 - 1) * factor), types[p % 3]);
                    all_.push_back(double(element));
                    if (piece == own) mine.push_back(element);
                }
            memory_.emplace_back(mine.size() * 4 + 1);
            counts_.push_back(mine.size());
            for (size_t i = 0; i < mine.size(); ++i) put(p, i, mine[i]);
        }
    }
    std::vector<weftTrainPart_t> parts() {
        std::vector<weftTrainPart_t> made;
        for (int p = 0; p < 8; ++p) {
            weftTrainPart_t part = WEFT_TRAIN_PART_INITIALIZER;
            part.name = "gradient";
            part.gradient = memory_[size_t(p)].data();
            part.gradientType = types[p % 3];
            part.count = counts_[size_t(p)];
            part.axes = unsigned(p & 3);
            made.push_back(part);
        }
        return made;
    }
    double norm(double p) const {
        double sum = 0;
        for (const double each : all_)
            sum = std::isinf(p) ? std::max(sum, std::fabs(each)) : sum + std::pow(std::fabs(each), p);
        return std::isinf(p) ? sum : std::pow(sum, 1 / p);
    }
    double at(int p, size_t i) const {
        float wide = 0;
        uint16_t half = 0;
        memcpy(&wide, memory_[size_t(p)].data() + 4 * i, 4);
        memcpy(&half, memory_[size_t(p)].data() + 2 * i, 2);
        if (p % 3 == 0) return double(wide);
        return double(p % 3 == 1 ? Arithmetic<weftFloat16>::widen(half) : Arithmetic<weftBfloat16>::widen(half));
    }
    void put(int p, size_t i, float value) {
        const uint16_t half =
            p % 3 == 1 ? Arithmetic<weftFloat16>::round(value) : Arithmetic<weftBfloat16>::round(value);
        if (p % 3 == 0)
            memcpy(memory_[size_t(p)].data() + 4 * i, &value, 4);
        else
            memcpy(memory_[size_t(p)].data() + 2 * i, &half, 2);
    }

  private:
    static float rounded(float value, weftDataType_t type) {
        if (type == weftFloat16) return Arithmetic<weftFloat16>::widen(Arithmetic<weftFloat16>::round(value));
        if (type == weftBfloat16) return Arithmetic<weftBfloat16>::widen(Arithmetic<weftBfloat16>::round(value));
        return value;
    }
    std::vector<double> all_;  // of the whole mesh, each element once
    std::vector<std::vector<std::byte>> memory_;
    std::vector<size_t> counts_;
};

// body(axes, gradients) on each rank of a mesh; the ranks with one number / sizes[0] form axis 0.
template <class Body>
void on_mesh(int rows, int columns, Body&& body) {
    const auto wrong = on_threads(rows * columns, nullptr, [&](weftComm_t comm, int rank) -> std::string {
        const int sizes[2] = {rows, columns};
        const int first = rank % rows, second = rank / rows;
        weftComm_t axes[2] = {};
        if (weftCommSplit(comm, second, first, &axes[0], nullptr) != weftSuccess ||
            weftCommSplit(comm, first, second, &axes[1], nullptr) != weftSuccess)
            return weftGetLastError(nullptr);
        Gradients gradients(first, second, sizes, 10);
        std::string text = body(axes, gradients, rank);
        for (const weftComm_t axis : axes) (void)weftCommDestroy(axis);
        return text;
    });
    CHECK(wrong == std::vector<std::string>(size_t(rows * columns)));
}

}  // namespace

TEST_CASE("norms over a mesh count sharded gradients over their axes and replicated ones once") {
    for (const auto& [rows, columns] : {std::pair(1, 1), {2, 1}, {1, 3}, {2, 2}})
        on_mesh(rows, columns, [&](weftComm_t(&axes)[2], Gradients& gradients, int) -> std::string {
            const auto parts = gradients.parts();
            for (const double p : {1.0, 2.0, 3.0, 0.5, double(INFINITY)}) {
                double norm = -1;
                if (weftTrainGradientNorm(parts.data(), parts.size(), axes, 2, p, &norm, nullptr) != weftSuccess)
                    return weftGetLastError(nullptr);
                if (!(std::fabs(norm - gradients.norm(p)) <= 1e-9 * gradients.norm(p)))
                    return fmt::format("the {}-norm is {}, not {}", p, norm, gradients.norm(p));
            }
            return "";
        });
}

TEST_CASE("clipping multiplies by max_norm / (norm + 1e-6), at most 1") {
    on_mesh(2, 2, [&](weftComm_t(&axes)[2], Gradients& gradients, int) -> std::string {
        const auto parts = gradients.parts();
        const Gradients before = gradients;
        double norm = 0;
        (void)weftTrainGradientNorm(parts.data(), parts.size(), axes, 2, 2, &norm, nullptr);
        for (const double max_norm : {norm * 2, norm / 8}) {
            if (weftTrainClipGradients(parts.data(), parts.size(), norm, max_norm, 1, nullptr) != weftSuccess)
                return weftGetLastError(nullptr);
            const double factor = std::min(1.0, max_norm / (norm + 1e-6));
            for (int p = 0; p < 8; ++p)
                for (size_t i = 0; i < parts[size_t(p)].count; ++i) {
                    const double expected = before.at(p, i) * factor;
                    if (!(std::fabs(gradients.at(p, i) - expected) <= std::fabs(expected) * 0.004 + 1e-7))
                        return fmt::format("element {} of part {} is {}", i, p, gradients.at(p, i));
                }
        }
        return "";
    });
}

TEST_CASE("an infinite or NaN gradient makes the norm so on all ranks, and clipping refuses it if asked") {
    for (const float wrong : {float(INFINITY), float(NAN)})
        on_mesh(2, 2, [&](weftComm_t(&axes)[2], Gradients& gradients, int rank) -> std::string {
            const auto parts = gradients.parts();
            if (rank == 3) gradients.put(3, 7, wrong);
            const double before = gradients.at(0, 0);
            for (const double p : {1.0, 2.0, double(INFINITY)}) {
                double norm = 0;
                (void)weftTrainGradientNorm(parts.data(), parts.size(), axes, 2, p, &norm, nullptr);
                if (std::isnan(wrong) ? !std::isnan(norm) : norm != INFINITY) return "a finite norm";
                if (weftTrainClipGradients(parts.data(), parts.size(), norm, 1, 1, nullptr) == weftSuccess) return "ok";
                if (newest_id() != "train.norm" || gradients.at(0, 0) != before) return newest_id();
            }
            if (weftTrainClipGradients(parts.data(), parts.size(), NAN, 1, 0, nullptr) != weftSuccess)
                return newest_id();
            return std::isnan(gradients.at(0, 0)) ? "" : "clipped by NaN";
        });
}

TEST_CASE("an infinite gradient on one rank is found on all, and the scale follows PyTorch's rule") {
    on_mesh(2, 2, [&](weftComm_t(&axes)[2], Gradients& gradients, int rank) -> std::string {
        const auto parts = gradients.parts();
        weftTrainScalerConfig_t config = WEFT_TRAIN_SCALER_CONFIG_INITIALIZER;
        config.growthInterval = 2;
        config.leastScale = 8192;
        weftTrainScaler_t scaler = nullptr;
        if (weftTrainScalerCreate(&scaler, axes, 2, &config) != weftSuccess) return newest_id();
        // '+': no rank has an infinite gradient.
        const std::pair<char, double> steps[] = {{'+', 65536}, {'+', 131072}, {'-', 65536}, {'+', 65536},
                                                 {'-', 32768}, {'+', 32768},  {'+', 65536}};
        for (const auto& [kind, expected] : steps) {
            gradients.put(3, 7, kind == '-' && rank == 2 ? float(NAN) : 1);
            int found = -1;
            if (weftTrainScalerUnscale(scaler, parts.data(), parts.size(), 0, &found, nullptr) != weftSuccess)
                return newest_id();
            if (found != (kind == '-')) return "wrong about NaN";
            double scale = 0;
            if (weftTrainScalerUpdate(scaler) != weftSuccess) return newest_id();
            if (weftTrainScalerGetState(scaler, &scale, nullptr) != weftSuccess || scale != expected)
                return fmt::format("the scale is {}, not {}", scale, expected);
        }
        const double before = gradients.at(0, 5);
        int found = -1;
        if (weftTrainScalerUnscale(scaler, parts.data(), 1, 1, &found, nullptr) != weftSuccess || found)
            return "not divided";
        if (std::fabs(gradients.at(0, 5) * 65536 - before) > 1e-9) return "divided by another number";
        return weftTrainScalerDestroy(scaler) == weftSuccess ? "" : newest_id();
    });
}

TEST_CASE("a scale that would fall below its least value is an error on all ranks") {
    on_mesh(2, 1, [&](weftComm_t(&axes)[2], Gradients& gradients, int rank) -> std::string {
        const auto parts = gradients.parts();
        if (rank == 1) gradients.put(1, 0, INFINITY);
        weftTrainScalerConfig_t config = WEFT_TRAIN_SCALER_CONFIG_INITIALIZER;
        config.scale = 3;
        config.leastScale = 1;
        weftTrainScaler_t scaler = nullptr;
        if (weftTrainScalerCreate(&scaler, axes, 2, &config) != weftSuccess) return newest_id();
        std::string seen;
        for (int i = 0; i < 2; ++i) {
            int found = 0;
            (void)weftTrainScalerUnscale(scaler, parts.data(), parts.size(), 0, &found, nullptr);
            seen += weftTrainScalerUpdate(scaler) == weftSuccess ? "+ " : newest_id();
        }
        double scale = 0;
        int good = -1;
        (void)weftTrainScalerSetState(scaler, 64, 5);
        (void)weftTrainScalerGetState(scaler, &scale, &good);
        (void)weftTrainScalerDestroy(scaler);
        return seen == "+ train.loss-scale" && scale == 64 && good == 5 ? "" : seen;
    });
}

TEST_CASE("the scale stays a float32 number") {
    weftTrainScalerConfig_t config = WEFT_TRAIN_SCALER_CONFIG_INITIALIZER;
    config.scale = 0x1p127;
    config.growthInterval = 1;
    weftTrainScaler_t scaler = nullptr;
    REQUIRE(weftTrainScalerCreate(&scaler, nullptr, 0, &config) == weftSuccess);
    REQUIRE(weftTrainScalerUpdate(scaler) == weftSuccess);
    double scale = 0;
    int good = -1;
    CHECK(weftTrainScalerGetState(scaler, &scale, &good) == weftSuccess);
    CHECK((scale == 0x1p127 && good == 0));
    CHECK(weftTrainScalerDestroy(scaler) == weftSuccess);
}

TEST_CASE("wrong arguments of norms and scales are errors with ids") {
    float gradient[1] = {1};
    weftTrainPart_t part = WEFT_TRAIN_PART_INITIALIZER;
    part.name = "one";
    part.gradient = gradient;
    part.count = 1;
    double norm = 0;
    CHECK(id_of(weftTrainGradientNorm(&part, 1, nullptr, 0, 0, &norm, nullptr)) == "argument.value");
    CHECK(id_of(weftTrainGradientNorm(&part, 1, nullptr, 0, NAN, &norm, nullptr)) == "argument.value");
    CHECK(id_of(weftTrainGradientNorm(&part, 1, nullptr, 0, 2, nullptr, nullptr)) == "argument.null");
    CHECK(id_of(weftTrainGradientNorm(nullptr, 1, nullptr, 0, 2, &norm, nullptr)) == "argument.null");
    CHECK(id_of(weftTrainGradientNorm(&part, 1, nullptr, 33, 2, &norm, nullptr)) == "argument.null");
    CHECK(id_of(weftTrainClipGradients(&part, 1, -1, 1, 0, nullptr)) == "argument.value");
    CHECK(id_of(weftTrainClipGradients(&part, 1, 1, -1, 0, nullptr)) == "argument.value");
    CHECK(id_of(weftTrainClipGradients(&part, 1, 1, 1, 2, nullptr)) == "argument.value");
    using Change = void (*)(weftTrainScalerConfig_t&);
    for (const Change change :
         {Change([](auto& config) { config.scale = 0.5; }), Change([](auto& config) { config.scale = 1e39; }),
          Change([](auto& config) { config.growthFactor = 1; }), Change([](auto& config) { config.backoffFactor = 1; }),
          Change([](auto& config) { config.growthInterval = 0; }), Change([](auto& config) { config.leastScale = 0; }),
          Change([](auto& config) { config.magic = 0; })}) {
        weftTrainScalerConfig_t config = WEFT_TRAIN_SCALER_CONFIG_INITIALIZER;
        change(config);
        weftTrainScaler_t scaler = nullptr;
        CHECK(id_of(weftTrainScalerCreate(&scaler, nullptr, 0, &config)) == "argument.config");
        CHECK(scaler == nullptr);
    }
    weftTrainScaler_t scaler = nullptr;
    REQUIRE(weftTrainScalerCreate(&scaler, nullptr, 0, nullptr) == weftSuccess);
    int found = 0;
    CHECK(id_of(weftTrainScalerUnscale(scaler, &part, 1, 2, &found, nullptr)) == "argument.value");
    CHECK(id_of(weftTrainScalerUnscale(scaler, &part, 1, 1, nullptr, nullptr)) == "argument.null");
    part.gradientType = weftFloat16;
    CHECK(id_of(weftTrainScalerUnscale(scaler, &part, 1, 1, &found, nullptr)) == "argument.datatype");
    CHECK(id_of(weftTrainScalerUnscale(scaler, &part, 1, 0, &found, nullptr)).empty());
    CHECK(id_of(weftTrainScalerSetState(scaler, 0, 0)) == "argument.value");
    CHECK(id_of(weftTrainScalerSetState(scaler, 1, -1)) == "argument.value");
    CHECK(weftTrainScalerDestroy(scaler) == weftSuccess);
    CHECK(id_of(weftTrainScalerUpdate(scaler)) == "argument.handle");
}
