// The parts of examples/train against plain references: the multiply, and gradients against finite differences.
#include "examples/train/gpt.hpp"
#include "examples/train/storage.hpp"
#include "tests/catch.hpp"

#include <cmath>
#include <vector>

using namespace train;

namespace {

double uniform(int stream, std::size_t index) {
    return double(random_bits(7, std::uint64_t(stream), index) >> 11) / 4503599627370496.0 - 1;
}

std::vector<double> numbers(int stream, std::size_t count) {
    std::vector<double> all(count);
    for (std::size_t i = 0; i < count; ++i) all[i] = uniform(stream, i);
    return all;
}

// Values and gradients in vectors; counts the announcements of units.
class Vectors final : public Parameters<double> {
  public:
    explicit Vectors(const Shape& shape) {
        for (const Parameter& parameter : parameters_of(shape)) {
            all.push_back(numbers(int(all.size()) + 1, parameter.count()));
            gradients.emplace_back(parameter.count());
        }
    }
    void before(int unit, Pass) override { open.push_back(unit); }
    void after(int unit, Pass) override {
        CHECK(open.back() == unit);
        open.pop_back();
        ++passes;
    }
    const double* values(int parameter) const override { return all[std::size_t(parameter)].data(); }
    double* gradient(int parameter) override { return gradients[std::size_t(parameter)].data(); }

    std::vector<std::vector<double>> all, gradients;
    std::vector<int> open;
    int passes = 0;
};

}  // namespace

TEST_CASE("multiply equals three plain loops for any sizes and strides") {
    for (const int m : {1, 3, 4, 9})
        for (const int n : {1, 5, 130})
            for (const int depth : {1, 4, 7, 67}) {
                const auto a = numbers(1, std::size_t(m * depth)), b = numbers(2, std::size_t(depth * (n + 2)));
                std::vector<double> c(std::size_t(m * (n + 1)), 0.5), wanted = c, scratch;
                for (int i = 0; i < m; ++i)
                    for (int j = 0; j < n; ++j)
                        for (int k = 0; k < depth; ++k)
                            wanted[std::size_t(i * (n + 1) + j)] +=
                                a[std::size_t(k * m + i)] * b[std::size_t(k * (n + 2) + j)];
                multiply<double>(m, n, depth, {a.data(), 1, m}, {b.data(), n + 2}, {c.data(), n + 1});
                for (std::size_t i = 0; i < c.size(); ++i) CHECK(std::abs(c[i] - wanted[i]) < 1e-12);
                const auto turned = transposed<double>(depth, m, {a.data(), m}, scratch);
                CHECK(turned.data[turned.row * (m - 1) + depth - 1] == a.back());
            }
}

TEST_CASE("each gradient of the model is the finite difference of its loss") {
    const Shape shape{2, 8, 2, 5, 11};
    const int sequences = 3;
    const double scale = 0.5, delta = 1e-5;
    std::vector<int> tokens, targets;
    for (std::size_t i = 0; i < std::size_t(sequences * shape.context); ++i) {
        tokens.push_back(int(random_bits(1, 1, i) % 11));
        targets.push_back(int(random_bits(1, 2, i) % 11));
    }
    Vectors parameters(shape);
    Gpt<double> gpt(shape), other(shape);
    for (int times = 0; times < 2; ++times) {  // gradients are added up
        gpt.forward(parameters, sequences, tokens.data(), targets.data(), scale);
        gpt.backward(parameters, tokens.data());
    }
    CHECK(parameters.passes == 4 * unit_count(shape));
    const auto loss = [&] { return other.forward(parameters, sequences, tokens.data(), targets.data()); };
    int checked = 0;
    for (std::size_t number = 0; number < parameters.all.size(); ++number) {
        for (std::size_t i = 0; i < parameters.all[number].size(); ++i, ++checked) {
            double& value = parameters.all[number][i];
            const double before = value;
            value = before + delta;
            const double above = loss();
            value = before - delta;
            const double below = loss();
            value = before;
            const double wanted = 2 * scale * (above - below) / (2 * delta);
            INFO("parameter " << number << ", element " << i);
            CHECK(std::abs(parameters.gradients[number][i] - wanted) < 1e-8 + 1e-6 * std::abs(wanted));
        }
    }
    CHECK(checked == 88 + 40 + 2 * (4 * 8 + 192 + 24 + 64 + 8 + 256 + 32 + 256 + 8) + 16 + 88);
}

TEST_CASE("bfloat16 is rounded to nearest even") {
    CHECK(float(Bfloat16(1.0f)) == 1.0f);
    CHECK(float(Bfloat16(1.00390625f)) == 1.0f);  // half-way between two
    CHECK(float(Bfloat16(1.01171875f)) == 1.015625f);
    CHECK(float(Bfloat16(1.004f)) == 1.0078125f);
    CHECK(float(Bfloat16(-3.0e38f)) < -2.9e38f);
    CHECK(std::isnan(float(Bfloat16(NAN))));
}
