#include "src/train/hooks/power_sgd.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

#include "src/train/peers.hpp"

namespace weft::internal::train {

namespace {

// Several sums at once, which become vectors.
float dot(const float* left, const float* right, size_t count) {
    constexpr size_t lanes = 16;
    float sums[lanes] = {};
    size_t i = 0;
    for (; i + lanes <= count; i += lanes)
        for (size_t k = 0; k < lanes; ++k) sums[k] += left[i + k] * right[i + k];
    for (; i < count; ++i) sums[i % lanes] += left[i] * right[i];
    float sum = 0;
    for (const float lane : sums) sum += lane;
    return sum;
}

void add_scaled(float* to, float factor, const float* from, size_t count) {
    for (size_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

// Standard normal, by Box and Muller: the standard library's distribution differs between libraries.
void fill_normal(float* numbers, size_t count, uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto uniform = [&] { return double((random() >> 11) + 1) * 0x1p-53; };
    for (size_t i = 0; i < count; i += 2) {
        const double radius = std::sqrt(-2 * std::log(uniform())), angle = 2 * std::numbers::pi * uniform();
        numbers[i] = float(radius * std::cos(angle));
        if (i + 1 < count) numbers[i + 1] = float(radius * std::sin(angle));
    }
}

float norm(const float* column, size_t length) {
    double squares = 0;
    for (size_t i = 0; i < length; ++i) squares += double(column[i]) * double(column[i]);
    return float(std::sqrt(squares));
}

}  // namespace

bool is_worth_rank(size_t rows, size_t columns, size_t rank, double least_rate) {
    return double(rows + columns) * double(rank) * least_rate < double(rows) * double(columns);
}

void orthonormalize(float* columns, size_t count, size_t length) {
    // The rest of a dependent column is noise of the subtraction.
    constexpr float dependent = 1e-5f;
    for (size_t k = 0; k < count; ++k) {
        float* const column = columns + k * length;
        const float before = norm(column, length);
        // A second pass removes the errors of the first one.
        for (int pass = 0; pass < 2; ++pass)
            for (size_t earlier = 0; earlier < k; ++earlier) {
                const float* const other = columns + earlier * length;
                add_scaled(column, -dot(column, other, length), other, length);
            }
        const float left = norm(column, length);
        // A NaN stays one.
        if (left <= before * dependent)
            std::fill_n(column, length, 0.0f);
        else
            for (size_t i = 0; i < length; ++i) column[i] /= left;
    }
}

size_t PowerSgd::rank_of(const LowRankMatrix& matrix) const { return std::min({rank_, matrix.rows, matrix.columns}); }

void PowerSgd::begin_right(const LowRankMatrix& matrix) const {
    std::vector<float>& right = *matrix.right;
    const size_t rank = rank_of(matrix), length = matrix.columns;
    if (right.size() != rank * length) {
        right.resize(rank * length);
        fill_normal(right.data(), right.size(), matrix.seed);
    }
    orthonormalize(right.data(), rank, length);
    // A column of zeros would stay zero forever.
    bool any = false;
    for (size_t k = 0; k < rank; ++k) {
        float* const column = right.data() + k * length;
        if (std::any_of(column, column + length, [](float number) { return number != 0; })) continue;
        fill_normal(column, length, matrix.seed + k + 1);
        any = true;
    }
    if (any) orthonormalize(right.data(), rank, length);
}

Status PowerSgd::run(const Peers& peers, double divisor, std::span<LowRankMatrix> matrices,
                     std::span<const std::span<float>> whole) {
    for (const LowRankMatrix& matrix : matrices) begin_right(matrix);
    WEFT_TRY(add_left(peers, divisor, matrices, whole));
    return matrices.empty() ? ok() : average_right(peers, divisor, matrices);
}

Status PowerSgd::add_left(const Peers& peers, double divisor, std::span<LowRankMatrix> matrices,
                          std::span<const std::span<float>> whole) {
    left_.clear();
    for (const LowRankMatrix& matrix : matrices)
        for (size_t k = 0; k < rank_of(matrix); ++k)
            for (size_t row = 0; row < matrix.rows; ++row)
                left_.push_back(dot(matrix.numbers + row * matrix.columns, matrix.right->data() + k * matrix.columns,
                                    matrix.columns));
    const size_t factors = left_.size();
    for (const std::span<float> numbers : whole) left_.insert(left_.end(), numbers.begin(), numbers.end());
    if (!left_.empty()) WEFT_TRY(peers.all_reduce(left_.data(), left_.size(), weftFloat32, weftSum));
    const float* average = left_.data() + factors;
    for (const std::span<float> numbers : whole)
        for (float& number : numbers) number = *average++ / float(divisor);
    float* column = left_.data();
    for (const LowRankMatrix& matrix : matrices) {
        orthonormalize(column, rank_of(matrix), matrix.rows);
        column += rank_of(matrix) * matrix.rows;
    }
    return ok();
}

Status PowerSgd::average_right(const Peers& peers, double divisor, std::span<LowRankMatrix> matrices) {
    const auto each_row = [&](auto&& body) {
        const float* factor = left_.data();
        size_t begin = 0;
        for (const LowRankMatrix& matrix : matrices)
            for (size_t k = 0; k < rank_of(matrix); ++k, begin += matrix.columns)
                for (size_t row = 0; row < matrix.rows; ++row)
                    body(matrix.numbers + row * matrix.columns, *factor++, begin, matrix.columns);
    };
    size_t numbers = 0;
    for (const LowRankMatrix& matrix : matrices) numbers += matrix.right->size();
    right_.assign(numbers, 0);
    each_row([&](const float* row, float factor, size_t begin, size_t columns) {
        add_scaled(right_.data() + begin, factor, row, columns);
    });
    WEFT_TRY(peers.all_reduce(right_.data(), right_.size(), weftFloat32, weftSum));
    const float* average = right_.data();
    for (float& number : right_) number /= float(divisor);
    for (const LowRankMatrix& matrix : matrices) {
        std::copy_n(average, matrix.right->size(), matrix.right->begin());
        average += matrix.right->size();
        std::fill_n(matrix.numbers, matrix.rows * matrix.columns, 0.0f);
    }
    each_row([&](float* row, float factor, size_t begin, size_t columns) {
        add_scaled(row, factor, right_.data() + begin, columns);
    });
    return ok();
}

}  // namespace weft::internal::train
